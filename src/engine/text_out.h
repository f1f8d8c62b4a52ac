// Turns drawn tokens into the text that a caller sees: whole characters, up to a stop string.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/stop_text.h"
#include "tessera/tokenizer.h"

namespace tessera {

class TextOut {
 public:
  // Without a tokenizer there is no text. A decoder may drop a space at the beginning of a text, so
  // it gets the end of the prompt first.
  TextOut(const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
          const std::vector<std::string>& stops);

  // The text that became certain with this token.
  std::string push(std::int32_t id);
  // The rest of the text.
  std::string finish();
  bool stopped() const { return stops_.stopped(); }

 private:
  std::string decode(std::int32_t id);

  const Tokenizer* tokenizer_;
  std::optional<StreamDecoder> decoder_;
  StopText stops_;
};

}  // namespace tessera
