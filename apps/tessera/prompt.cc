#include "prompt.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/input_file.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

// Longer than any text to score or continue. Endless input must not fill the memory.
constexpr std::int64_t kMaxText = std::int64_t{1} << 30;

std::string read_all_input() {
  std::string text;
  std::array<char, 1 << 16> chunk{};
  while (const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), stdin)) {
    text.append(chunk.data(), count);
    if (std::cmp_greater(text.size(), kMaxText)) {
      fail(ErrorCode::file, "standard input has more than {} bytes, the most that a text may have",
           kMaxText);
    }
  }
  if (std::ferror(stdin) != 0) {
    fail(ErrorCode::file, "cannot read standard input: {}", std::strerror(errno));
  }
  return text;
}

}  // namespace

std::string read_text_file(const std::string& name) {
  return name == "-" ? read_all_input() : model::read_small_file(name, kMaxText);
}

std::vector<std::int32_t> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    std::string_view part = text.substr(begin, comma - begin);
    while (!part.empty() && is_space(part.front())) part.remove_prefix(1);
    while (!part.empty() && is_space(part.back())) part.remove_suffix(1);
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc() || end != part.data() + part.size()) {
      fail_usage(
          "--prompt-ids: '{}' is not a token id; give whole numbers separated by commas, such as "
          "1,2,3",
          part);
    }
    ids.push_back(id);
    begin = comma + 1;
  }
  return ids;
}

}  // namespace tessera::app
