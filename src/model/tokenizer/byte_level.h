// Two ways in which a vocabulary spells bytes. GPT-2's alphabet has 256 printable characters, one
// for each byte: a vocabulary spelled in it can hold any bytes and still be a list of words without
// spaces. The space is "Ġ". A vocabulary of plain characters has a token <0xHH> for each byte.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::model {

// Each byte of `bytes` as its character, in UTF-8.
void append_byte_level(std::string& to, std::string_view bytes);

// The bytes that a text in the alphabet spells; nothing if a character is not in the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view text);

// The byte of <0xHH>; nothing for other tokens.
std::optional<char> fallback_byte(std::string_view token);

}  // namespace tessera::model
