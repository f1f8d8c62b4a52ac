// Guessing several tokens ahead. One pass checks all of them, and those that the model itself would
// have drawn are kept. The text is the same as without, only sooner.
//
// Threads: a value, as safe as an int. The draft model may be used by any number.
#pragma once

#include <cstdint>

namespace tessera {

class Model;

struct SpeculationOptions {
  enum class Kind : std::uint8_t {
    off,
    ngram,  // what followed the last few tokens where they stood before, in the prompt or the text
    draft,  // what a smaller model with the same tokenizer says
  };
  Kind kind = Kind::off;
  std::int64_t max_tokens = 8;  // guessed at a time
  // Guesses less while few are right, and nothing where guessing takes more time than it saves.
  // false: always max_tokens.
  bool adaptive = true;
  const Model* draft = nullptr;  // for Kind::draft; must outlive the engine
};

}  // namespace tessera
