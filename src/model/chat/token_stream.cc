#include "model/chat/token_stream.h"

#include "model/checkpoint/quote.h"

namespace tessera::model::chat {
namespace {

std::string describe_token(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::string:
      return "the string " + in_quotes(token.text);
    case TokenKind::end:
      return "the end of the template";
    default:
      return in_quotes(token.text);
  }
}

}  // namespace

void TokenStream::refuse_now(std::string_view expected) const {
  refuse_at(now().at, ErrorCode::unsupported,
            fmt::format("{} was found where {} is expected", describe_token(now()), expected));
}

}  // namespace tessera::model::chat
