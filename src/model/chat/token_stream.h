// The tokens that a parser has not read yet.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/token.h"

namespace tessera::model::chat {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  // The last token repeats for ever.
  const Token& after(std::size_t count) const {
    return tokens_[std::min(at_ + count, tokens_.size() - 1)];
  }
  Token take() {
    Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_sign(std::string_view sign) { return skip(now().is_sign(sign)); }
  bool skip_name(std::string_view name) { return skip(now().is_name(name)); }
  Token expect(TokenKind kind, std::string_view what) {
    if (now().kind != kind) refuse_now(what);
    return take();
  }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) refuse_now(fmt::format("'{}'", sign));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) refuse_now(fmt::format("'{}'", name));
  }

  // "'x' was found where 'in' is expected"
  [[noreturn]] void refuse_now(std::string_view expected) const;

 private:
  bool skip(bool matches) {
    if (matches) take();
    return matches;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace tessera::model::chat
