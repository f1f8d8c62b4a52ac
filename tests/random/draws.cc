#include "random/draws.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/fail.h"

namespace tessera::test {
namespace {

std::int64_t number_of(const std::string& name, const std::string& text) {
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size()) {
    fail(ErrorCode::invalid_argument, "the value of {} is '{}'; give a whole number", name, text);
  }
  return value;
}

// What is drawn has an upper limit so that a call ends soon. What a line asks for may be larger.
std::int64_t at_least(const std::string& name, std::int64_t value, std::int64_t least) {
  if (value < least) {
    fail(ErrorCode::invalid_argument, "{} is {}; give at least {}", name, value, least);
  }
  return value;
}

}  // namespace

Draws::Draws(std::string_view line) : repeats_(true) {
  std::istringstream words{std::string(line)};
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      fail(ErrorCode::invalid_argument, "'{}' is not of the form name=value", word);
    }
    values_[word.substr(0, equals)] = word.substr(equals + 1);
  }
}

// SplitMix64: the same numbers everywhere.
std::uint64_t Draws::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::int64_t Draws::below(std::int64_t n) {
  return static_cast<std::int64_t>(next() %
                                   static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1)));
}

bool Draws::given(const std::string& name, std::string* text) {
  if (!repeats_) return false;
  const auto found = values_.find(name);
  if (found == values_.end()) {
    fail(ErrorCode::invalid_argument, "the line has no value {}", name);
  }
  *text = found->second;
  values_.erase(found);
  return true;
}

void Draws::note(const std::string& name, const std::string& text) {
  line_ += fmt::format("{}{}={}", line_.empty() ? "" : " ", name, text);
}

std::int64_t Draws::between(const std::string& name, std::int64_t least, std::int64_t most) {
  std::string text;
  const std::int64_t value = given(name, &text) ? at_least(name, number_of(name, text), least)
                                                : least + below(most - least + 1);
  note(name, std::to_string(value));
  return value;
}

// Uniform in the logarithm; a third of the larger ones is moved to a multiple of 8 to 128, or one
// beside it.
std::int64_t Draws::draw_size(std::int64_t least, std::int64_t most) {
  if (most <= least) return least;
  const double share = static_cast<double>(below(1 << 20)) / (1 << 20);
  const double span = std::log2(static_cast<double>(most - least) + 1);
  std::int64_t value = least + static_cast<std::int64_t>(std::exp2(share * span)) - 1;
  if (value > 16 && below(3) == 0) {
    const std::int64_t tile = std::int64_t{8} << below(5);
    value = value / tile * tile + below(3) - 1;
  }
  return std::clamp(value, least, most);
}

std::int64_t Draws::size(const std::string& name, std::int64_t least, std::int64_t most) {
  std::string text;
  const std::int64_t value =
      given(name, &text) ? at_least(name, number_of(name, text), least) : draw_size(least, most);
  note(name, std::to_string(value));
  return value;
}

std::vector<std::int64_t> Draws::sizes(const std::string& name, std::int64_t count,
                                       std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> values;
  if (std::string text; given(name, &text)) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
      values.push_back(at_least(name, number_of(name, part), least));
    }
    if (std::ssize(values) != count) {
      fail(ErrorCode::invalid_argument, "{} has {} values; give {}", name, values.size(), count);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) values.push_back(draw_size(least, most));
  }
  note(name, fmt::format("{}", fmt::join(values, ",")));
  return values;
}

bool Draws::chance(const std::string& name, int percent) {
  std::string text;
  const bool value = given(name, &text) ? number_of(name, text) != 0 : below(100) < percent;
  note(name, value ? "1" : "0");
  return value;
}

std::int64_t Draws::one_of(const std::string& name, std::span<const std::int64_t> values) {
  std::string text;
  const std::int64_t value = given(name, &text)
                                 ? number_of(name, text)
                                 : values[static_cast<std::size_t>(below(std::ssize(values)))];
  note(name, std::to_string(value));
  return value;
}

double Draws::real(const std::string& name, std::initializer_list<double> values) {
  std::string text;
  const double value =
      given(name, &text) ? std::stod(text) : values.begin()[below(std::ssize(values))];
  note(name, fmt::format("{}", value));
  return value;
}

std::size_t Draws::word(const std::string& name, std::span<const std::string> words) {
  std::string text;
  auto index = static_cast<std::size_t>(below(std::ssize(words)));
  if (given(name, &text)) {
    const auto found = std::find(words.begin(), words.end(), text);
    if (found == words.end()) {
      fail(ErrorCode::invalid_argument, "{} is '{}'; it can be {}", name, text,
           fmt::join(words, ", "));
    }
    index = static_cast<std::size_t>(found - words.begin());
  }
  note(name, words[index]);
  return index;
}

DType Draws::dtype(const std::string& name, std::span<const DType> dtypes) {
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.emplace_back(tessera::name(dtype));
  return dtypes[word(name, names)];
}

Layout Draws::layout(const std::string& name, bool aligned) {
  std::vector<Layout> layouts{Layout::contiguous, Layout::permuted, Layout::spaced};
  if (!aligned) layouts.push_back(Layout::sliced);
  std::vector<std::string> names;
  for (const Layout layout : layouts) names.push_back(to_string(layout));
  return layouts[word(name, names)];
}

std::uint64_t Draws::seed(const std::string& name) {
  return static_cast<std::uint64_t>(between(name, 0, 1 << 20)) << 8;
}

std::string Draws::unused() const { return values_.empty() ? "" : values_.begin()->first; }

}  // namespace tessera::test
