#include <string>
#include <utility>

#include "model/checkpoint/input_file.h"
#include "model/checkpoint/json.h"
#include "model/tokenizer/tokenizer_parts.h"
#include "tessera/prompt.h"

namespace tessera {
namespace {

constexpr std::int64_t kMaxTokenizerConfig = 64 << 20;  // bytes; published ones have a few KiB

// "<s>", or {"content": "<s>", ...}
std::string bos_text(const model::JsonView& config) {
  const model::Json* bos = config.find("bos_token");
  if (bos != nullptr && bos->is_object() && bos->contains("content")) bos = &bos->at("content");
  return bos != nullptr && bos->is_string() ? bos->get<std::string>() : std::string();
}

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const ModelConfig& config,
                             const std::filesystem::path& directory)
    : tokenizer_(&tokenizer), bos_(config.bos) {
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
  return begin(tokenizer_->encode(text));
}

std::vector<std::int32_t> PromptEncoder::begin(std::vector<std::int32_t> ids) const {
  if (add_bos_ != AddBos::no) ids = tokenizer_->parts().post_processor(std::move(ids));
  if (bos_ < 0) return ids;
  const auto bos = static_cast<std::int32_t>(bos_);
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

}  // namespace tessera
