#include "random/trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace tessera::test {
namespace {

// [2, 0, 17] of a number of an element.
std::vector<std::int64_t> place_of(std::size_t element, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> place(shape.size());
  auto rest = static_cast<std::int64_t>(element);
  for (std::size_t d = shape.size(); d-- > 0;) {
    place[d] = rest % shape[d];
    rest /= shape[d];
  }
  return place;
}

}  // namespace

void Trial::begin(const std::string& kernel) {
  kernel_ = kernel;
  watchdog_.begin(fmt::format("{} [kernel {}]", line(), kernel));
}

void Trial::expect(const testing::AssertionResult& result, const std::string& what) {
  if (result) return;
  problems_.push_back(fmt::format("{}: {}{}{}", kernel_, what,
                                  *result.message() == '\0' ? "" : ": ", result.message()));
}

void Trial::expect_within(const reference::Array& actual, const reference::Array& expected,
                          const reference::Array& bound, const std::string& what) {
  if (actual.shape != expected.shape || actual.shape != bound.shape) {
    return expect(false, what + ": shapes differ");
  }
  std::size_t worst = 0, broken = 0;
  double most = 1;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double a = actual.data[i], e = expected.data[i];
    if (a == e) continue;  // equal infinities
    const double share = std::abs(a - e) / bound.data[i];
    if (share <= 1) continue;
    ++broken;
    if (share > most || std::isnan(share)) worst = i;
    most = std::isnan(share) ? INFINITY : std::max(most, share);
  }
  if (broken == 0) return;
  expect(testing::AssertionFailure() << fmt::format(
             "{} of {} elements are out of bounds; the worst, [{}], is {}, expected {} within {}",
             broken, expected.data.size(), fmt::join(place_of(worst, expected.shape), ", "),
             actual.data[worst], expected.data[worst], bound.data[worst]),
         what);
}

}  // namespace tessera::test
