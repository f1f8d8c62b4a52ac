// Text to token ids and back, as a tokenizer.json describes it: byte-level BPE (GPT-2, GPT-NeoX,
// Llama 3, Qwen) and SentencePiece-style BPE with byte fallback (Llama 2, Mistral).
//
// Threads: a Tokenizer never changes, and any number may use it at the same time. A StreamDecoder
// is for one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// What encode() does with special tokens, which control a model, such as <s> and <|im_end|>.
struct EncodeOptions {
  // Adds those that the post-processor puts around a text, such as <s>.
  bool add_special = false;
  // A special token that is written in the text becomes that token. Right for your own text, such
  // as a prompt or a template. Set it to false for somebody else's: then "<|im_end|>" stays ten
  // characters, and the text gives no special token except the one for unknown characters. For the
  // turns of a chat see tessera/chat.h.
  bool parse_special = true;
};

class Tokenizer {
 public:
  // From a tokenizer.json, or a folder that holds one.
  static Tokenizer from_file(const std::filesystem::path& path);
  // From the text of a tokenizer.json; `where` names it in errors.
  static Tokenizer from_json(std::string_view json, const std::string& where);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Refuses text that is not UTF-8, with the offset of the first wrong byte. encode(text) takes the
  // text as your own: special tokens in it are recognised, and none are added around it. A file
  // whose patterns would take more than linear time on the text is refused too.
  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Refuses ids that are not in the vocabulary.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  std::int64_t vocab_size() const;  // the largest id + 1, including added tokens
  // The token as the vocabulary spells it; empty if no token has this id.
  std::string_view token(std::int32_t id) const;
  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_special(std::int32_t id) const;

  struct Parts;  // src/model/tokenizer
  const Parts& parts() const { return *parts_; }

 private:
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

// Decodes a stream: text comes out as soon as it is certain, never half a UTF-8 character. The
// pieces that push() and finish() return add up to decode() of all ids. As in decode(), bytes that
// are not UTF-8 become U+FFFD. The tokenizer must outlive the decoder.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(std::int32_t id);
  // The rest of the text. Afterwards a new stream begins.
  std::string finish();

 private:
  struct State;
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
