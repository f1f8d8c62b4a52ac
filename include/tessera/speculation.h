// Guessing several tokens ahead. One pass checks all of them, and keeps those that the model itself
// would have drawn. The text is the same as without guesses, but comes sooner.
//
// It is the same within rounding: attention over guesses sums in another order than over one token.
// If two tokens are equally likely within that error, the text may continue with the other one
// (docs/design/engine.md). EngineOptions::batch_invariant does not change this: it concerns rows of
// other streams, and guesses are rows of the stream itself.
//
// Threads: a value, as safe as an int. The draft model may be used by any number.
#pragma once

#include <cstdint>

namespace tessera {

class Model;

struct SpeculationOptions {
  enum class Kind : std::uint8_t {
    off,
    ngram,  // what followed earlier occurrences of the last few tokens, in the prompt or the text
    draft,  // what a smaller model with the same tokenizer predicts
  };
  Kind kind = Kind::off;
  std::int64_t max_tokens = 8;  // guessed at a time
  // Guesses less while few guesses are right, and not at all if guessing takes more time than it
  // saves. false: always max_tokens.
  bool adaptive = true;
  const Model* draft = nullptr;  // for Kind::draft; must outlive the engine
};

}  // namespace tessera
