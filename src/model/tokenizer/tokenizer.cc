#include "tessera/tokenizer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/as_error.h"
#include "core/fail.h"
#include "model/tokenizer/encode_text.h"
#include "model/tokenizer/tokenizer_parts.h"

namespace tessera {
namespace {

using model::kNoToken;

// Four times the largest published file; read whole into memory.
constexpr std::int64_t kMaxFileBytes = 128 << 20;

// The text for the decoder, by id; refuses ids that no token has.
std::string_view decoder_token(const Tokenizer::Parts& parts, std::int32_t id) {
  const auto added = parts.added.by_id.find(id);
  if (added != parts.added.by_id.end()) return added->second.decoded;
  const model::Vocabulary& vocabulary = parts.bpe.vocabulary();
  if (!vocabulary.has(id)) {
    fail(ErrorCode::invalid_argument, "token id {} is not in the vocabulary; ids are below {}", id,
         std::max<std::int64_t>(vocabulary.size(), parts.added.last_id + 1));
  }
  return vocabulary.token(id);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::from_file(const std::filesystem::path& path) {
  std::error_code ignored;  // opening the file reports what is wrong with it
  const auto file = std::filesystem::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  return as_error(fmt::format("reading {}", file.string()), [&] {
    const model::Json json = model::read_json_file(file, kMaxFileBytes);
    return Tokenizer(std::make_unique<Parts>(model::parse_tokenizer(json, file.string())));
  });
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& where) {
  return as_error(fmt::format("reading {}", where), [&] {
    return Tokenizer(
        std::make_unique<Parts>(model::parse_tokenizer(model::parse_json(json, where), where)));
  });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  model::check_utf8(text);
  return as_error("encoding a text", [&] {
    model::Foreign foreign;
    if (!options.parse_special && !text.empty()) foreign = {&parts_->special, {{0, text.size()}}};
    std::vector<std::int32_t> ids =
        model::encode_text(*parts_, parts_->added.in_text, text, foreign);
    return options.add_special ? parts_->post_processor(std::move(ids)) : ids;
  });
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  model::Decoder::State state = parts_->decoder.start();
  for (const std::int32_t id : ids) {
    const std::string_view token = decoder_token(*parts_, id);
    if (!skip_special || !is_special(id)) parts_->decoder.push(token, state, text);
  }
  parts_->decoder.finish(state, text);
  return text;
}

std::int64_t Tokenizer::vocab_size() const {
  return std::max<std::int64_t>(parts_->bpe.vocabulary().size(), parts_->added.last_id + 1);
}

std::string_view Tokenizer::token(std::int32_t id) const {
  const auto added = parts_->added.by_id.find(id);
  if (added != parts_->added.by_id.end()) return added->second.token.content;
  return parts_->bpe.vocabulary().token(id);
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto added = parts_->added.by_content.find(std::string(token));
  if (added != parts_->added.by_content.end()) return added->second;
  const std::int32_t id = parts_->bpe.vocabulary().find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

bool Tokenizer::is_special(std::int32_t id) const { return parts_->special.has(id); }

struct StreamDecoder::State {
  model::Decoder::State steps;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      state_(std::make_unique<State>(State{tokenizer.parts().decoder.start()})) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
  std::string text;
  const Tokenizer::Parts& parts = tokenizer_->parts();
  const std::string_view token = decoder_token(parts, id);
  if (!skip_special_ || !tokenizer_->is_special(id)) {
    parts.decoder.push(token, state_->steps, text);
  }
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  const model::Decoder& decoder = tokenizer_->parts().decoder;
  decoder.finish(state_->steps, text);
  state_->steps = decoder.start();
  return text;
}

}  // namespace tessera
