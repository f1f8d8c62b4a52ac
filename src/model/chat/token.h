// The words of a template.
#pragma once

#include <string>
#include <vector>

#include "model/chat/run.h"

namespace tessera::model::chat {

enum class TokenKind : std::uint8_t {
  data,  // between tags
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,  // without its quotes and escapes
  integer,
  number,  // with a point or an exponent
  sign,    // + == [ and the like
  end,
};

struct Token {
  TokenKind kind;
  std::string text;
  Position at;

  bool is(TokenKind wanted, std::string_view wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
  bool is_sign(std::string_view sign) const { return is(TokenKind::sign, sign); }
  bool is_name(std::string_view name) const { return is(TokenKind::name, name); }
};

// Cuts a template into tokens, and treats white space as transformers does: a newline after a block
// or comment is dropped (trim_blocks), and so are the spaces before one that begins a line
// (lstrip_blocks). The last token is `end`.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace tessera::model::chat
