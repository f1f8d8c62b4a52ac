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
#include "model/checkpoint/json.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

constexpr std::int64_t kMaxTokenizerConfig = 64 << 20;  // bytes; published ones have a few KiB

// No text that anybody scores or continues is longer; what never ends must not fill the memory.
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

// "<s>", or {"content": "<s>", ...}
std::string bos_text(const model::JsonView& config) {
  const model::Json* bos = config.find("bos_token");
  if (bos != nullptr && bos->is_object() && bos->contains("content")) bos = &bos->at("content");
  return bos != nullptr && bos->is_string() ? bos->get<std::string>() : std::string();
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

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const ModelConfig& config,
                             const std::filesystem::path& directory)
    : tokenizer_(tokenizer), bos_(config.bos) {
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (model::is_named(path)) {
    const model::Json json = model::read_json_file(path, kMaxTokenizerConfig);
    const model::JsonView view(json, path.string());
    if (const auto add = view.optional_boolean("add_bos_token")) {
      add_bos_ = *add ? AddBos::yes : AddBos::no;
    }
    const std::string text = bos_text(view);
    if (const auto id = tokenizer.id_of(text); !text.empty() && id) bos_ = *id;
  }
}

std::vector<std::int32_t> PromptEncoder::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = tokenizer_.encode(text, add_bos_ != AddBos::no);
  if (bos_ < 0) return ids;
  const std::int32_t bos = static_cast<std::int32_t>(bos_);
  const bool has_one = !ids.empty() && ids[0] == bos;
  if (has_one && ids.size() > 1 && ids[1] == bos) {
    ids.erase(ids.begin());
  } else if (!has_one && add_bos_ == AddBos::yes) {
    ids.insert(ids.begin(), bos);
  }
  return ids;
}

std::int64_t PromptEncoder::bos() const {
  if (bos_ < 0) return -1;
  const std::vector<std::int32_t> ids = encode("a");
  return ids.empty() || ids[0] != bos_ ? -1 : bos_;
}

}  // namespace tessera::app
