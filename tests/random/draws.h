// What a random call is made of: values with names. They are drawn from a seed, or taken from a
// line that an earlier run has printed. An op asks for its values in the same way in both cases:
//
//   const std::int64_t rows = draws.size("rows", 1, 300);     //  ... rows=17 ...
//
// so that the line describes the call whole, can be read, and can be changed by hand.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/test_tensor.h"
#include "tessera/dtype.h"

namespace tessera::test {

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  // From "name=value name=value". Throws where a word is not of that form.
  explicit Draws(std::string_view line);

  std::int64_t between(const std::string& name, std::int64_t least, std::int64_t most);
  // A length: small ones as often as large ones, and often one at the border of a tile.
  std::int64_t size(const std::string& name, std::int64_t least, std::int64_t most);
  std::vector<std::int64_t> sizes(const std::string& name, std::int64_t count, std::int64_t least,
                                  std::int64_t most);
  bool chance(const std::string& name, int percent);
  std::int64_t one_of(const std::string& name, std::span<const std::int64_t> values);
  std::int64_t one_of(const std::string& name, std::initializer_list<std::int64_t> values) {
    return one_of(name, std::span(values.begin(), values.size()));
  }
  double real(const std::string& name, std::initializer_list<double> values);
  // The index of one of these words, which have no spaces.
  std::size_t word(const std::string& name, std::span<const std::string> words);
  std::size_t word(const std::string& name, std::initializer_list<std::string> words) {
    return word(name, std::span(words.begin(), words.size()));
  }
  DType dtype(const std::string& name, std::span<const DType> dtypes);
  // `aligned`: one whose rows begin on 16 bytes if they are whole multiples of that.
  Layout layout(const std::string& name, bool aligned = false);
  // For the numbers of the call's tensors.
  std::uint64_t seed(const std::string& name);

  // Below n, and not part of the line.
  std::int64_t unnamed(std::int64_t n) { return below(n); }

  // All values so far.
  const std::string& line() const { return line_; }
  // A name of the given line that nobody has asked for, or "".
  std::string unused() const;

 private:
  std::uint64_t next();
  std::int64_t below(std::int64_t n);
  bool given(const std::string& name, std::string* text);
  void note(const std::string& name, const std::string& text);
  std::int64_t draw_size(std::int64_t least, std::int64_t most);

  std::uint64_t state_ = 0;
  bool repeats_ = false;
  std::map<std::string, std::string> values_;
  std::string line_;
};

}  // namespace tessera::test
