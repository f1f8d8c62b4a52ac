// A byte-level tokenizer without merges, small enough for the vocabularies of tiny checkpoints:
// token 0 is <|endoftext|>, and each byte is a token of its own.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::test {

enum class TinyVocabulary : std::uint8_t {
  printable,  // 96 tokens: ids 1 to 95 are the bytes 32 to 126
  bytes,      // 257 tokens: ids 1 to 256 are the bytes 0 to 255
};

// The text of its tokenizer.json. With add_bos, its post-processor puts token 0 in front.
std::string tiny_tokenizer_json(TinyVocabulary vocabulary, bool add_bos = false);

}  // namespace tessera::test
