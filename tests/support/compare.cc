#include "support/compare.h"

#include <algorithm>
#include <cmath>

namespace tessera::test {
namespace {

testing::AssertionResult same_shape(const Array& a, const Array& b) {
  if (a.shape == b.shape) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "shapes differ: " << testing::PrintToString(a.shape)
                                     << " and " << testing::PrintToString(b.shape);
}

struct Deviation {
  double max = 0, mean = 0;
};

Deviation deviation(const Array& actual, const Array& exact) {
  Deviation result;
  for (std::size_t i = 0; i < exact.data.size(); ++i) {
    const double a = actual.data[i], e = exact.data[i];
    const double error = a == e ? 0.0 : std::abs(a - e);  // equal infinities differ by nothing
    // A NaN must not lose a comparison with a number.
    result.max = std::isnan(error) ? INFINITY : std::max(result.max, error);
    result.mean += error;
  }
  if (!exact.data.empty()) result.mean /= static_cast<double>(exact.data.size());
  return result;
}

}  // namespace

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

testing::AssertionResult close(const Array& actual, const Array& expected, double relative,
                               double absolute) {
  if (auto same = same_shape(actual, expected); !same) return same;
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    const double a = actual.data[i], e = expected.data[i];
    if (a == e) continue;
    if (!(std::abs(a - e) <= absolute + relative * std::abs(e))) {
      return testing::AssertionFailure()
             << "element " << i << " of " << expected.data.size() << " is " << a << ", expected "
             << e << " (difference " << a - e << ", allowed " << absolute + relative * std::abs(e)
             << ")";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult as_good_as(const Array& actual, const Array& exact, const Array& plain,
                                    double atol) {
  if (auto same = same_shape(actual, exact); !same) return same;
  if (auto same = same_shape(plain, exact); !same) return same;
  const Deviation ours = deviation(actual, exact), theirs = deviation(plain, exact);
  if (ours.max <= 2 * theirs.max + atol && ours.mean <= 1.5 * theirs.mean + atol) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "max error " << ours.max << " (plain " << theirs.max << "), mean error " << ours.mean
         << " (plain " << theirs.mean << "), atol " << atol;
}

testing::AssertionResult identical(const Array& a, const Array& b) {
  if (auto same = same_shape(a, b); !same) return same;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    const double x = a.data[i], y = b.data[i];
    if (x != y && !(std::isnan(x) && std::isnan(y))) {
      return testing::AssertionFailure() << "element " << i << ": " << x << " and " << y;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace tessera::test
