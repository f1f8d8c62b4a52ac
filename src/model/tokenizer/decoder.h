// From tokens back to text. A decoder is a chain of steps, and each can take its tokens one by one:
// decoding all at once and decoding a stream are the same code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer/normalizer.h"

namespace tessera::model {

// Removes up to `start` leading and `stop` trailing characters of a kind.
struct StripCharacters {
  char32_t content;
  std::int64_t start, stop;
};
struct MetaspaceToSpace {
  char32_t replacement;
  bool drop_in_first;  // it is dropped in the first token
};
struct BytesFromFallback {};  // a run of <0xHH> becomes text, or one U+FFFD each if it is not UTF-8
struct BytesFromByteLevel {};  // all tokens become one text; bytes that are not UTF-8 become U+FFFD
struct Fuse {};                // all tokens become one
struct JoinWithSpaces {};      // the default, if the file names no decoder

using DecoderStep = std::variant<Replace, StripCharacters, MetaspaceToSpace, BytesFromFallback,
                                 BytesFromByteLevel, Fuse, JoinWithSpaces>;

class Decoder {
 public:
  // What a step remembers about the tokens so far.
  struct StepState {
    std::string held{};      // not certain yet
    std::int64_t count = 0;  // checked bytes of `held`, or stripped characters
    bool started = false;    // the first token, or the first character that stays, has come
    Effort effort{};         // of all tokens together
  };
  using State = std::vector<StepState>;

  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps);

  State start() const { return State(steps_.size()); }
  // Appends the text that is certain now.
  void push(std::string_view token, State& state, std::string& out) const;
  // Appends the rest; the state is then used up.
  void finish(State& state, std::string& out) const;

 private:
  struct Feed;
  std::vector<DecoderStep> steps_;
  std::vector<bool> fused_;  // by step: its input is parts of one single token
};

}  // namespace tessera::model
