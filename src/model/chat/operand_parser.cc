// Operands, and what may follow them: members, calls, filters and tests. The operators between them
// are in expression_parser.cc.
#include <charconv>

#include "model/chat/expression_parser.h"
#include "model/chat/nodes.h"

namespace tessera::model::chat {

ExpressionPtr ExpressionParser::primary() {
  const Token& token = tokens_.now();
  if (token.kind == TokenKind::name) return name();
  if (token.kind == TokenKind::string) return strings();
  if (token.kind == TokenKind::integer || token.kind == TokenKind::number) return number();
  if (token.is_sign("(")) return parenthesised();
  if (token.is_sign("[")) return list();
  if (token.is_sign("{")) return dict();
  tokens_.refuse_now("an expression");
}

ExpressionPtr ExpressionParser::name() {
  Token token = tokens_.take();
  const std::string& text = token.text;
  if (text == "true" || text == "True") return make_expression(token.at, Literal{true});
  if (text == "false" || text == "False") return make_expression(token.at, Literal{false});
  if (text == "none" || text == "None") return make_expression(token.at, Literal{None{}});
  special_.varargs |= text == "varargs";
  special_.kwargs |= text == "kwargs";
  special_.caller |= text == "caller";
  return make_expression(token.at, Name{std::move(token.text)});
}

// Adjacent strings are one.
ExpressionPtr ExpressionParser::strings() {
  const Position at = tokens_.now().at;
  std::string text;
  while (tokens_.now().kind == TokenKind::string) text += tokens_.take().text;
  literals_.push_back(text);
  return make_expression(at, Literal{Text::literal(std::move(text))});
}

ExpressionPtr ExpressionParser::number() {
  const Token token = tokens_.take();
  const char* end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::integer) {
    std::int64_t integer = 0;
    if (std::from_chars(token.text.data(), end, integer).ec == std::errc()) {
      return make_expression(token.at, Literal{integer});
    }
  }
  double number = 0;
  if (token.kind == TokenKind::integer ||
      std::from_chars(token.text.data(), end, number).ec != std::errc()) {
    refuse_at(token.at, ErrorCode::unsupported, "the number does not fit into 64 bits");
  }
  return make_expression(token.at, Literal{number});
}

ExpressionPtr ExpressionParser::parenthesised() {
  const Nested nested(*this);
  const Position at = tokens_.take().at;
  if (tokens_.skip_sign(")")) return make_expression(at, ListOf{{}, ListKind::tuple});
  ExpressionPtr inside = tuple();
  tokens_.expect_sign(")");
  return inside;
}

ExpressionPtr ExpressionParser::list() {
  const Position at = tokens_.take().at;
  ListOf all{{}, ListKind::list};
  while (!tokens_.skip_sign("]")) {
    if (!all.items.empty()) tokens_.expect_sign(",");
    if (tokens_.skip_sign("]")) break;
    all.items.push_back(conditional());
  }
  return make_expression(at, std::move(all));
}

ExpressionPtr ExpressionParser::dict() {
  const Position at = tokens_.take().at;
  DictOf all;
  while (!tokens_.skip_sign("}")) {
    if (!all.entries.empty()) tokens_.expect_sign(",");
    if (tokens_.skip_sign("}")) break;
    ExpressionPtr key = conditional();
    tokens_.expect_sign(":");
    ExpressionPtr value = conditional();
    all.entries.emplace_back(std::move(key), std::move(value));
  }
  return make_expression(at, std::move(all));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr operand) {
  for (;;) {
    if (tokens_.now().is_sign(".")) {
      operand = member(std::move(operand));
    } else if (tokens_.now().is_sign("[")) {
      operand = subscript(std::move(operand));
    } else if (tokens_.now().is_sign("(")) {
      const Position at = tokens_.now().at;
      operand = make_expression(at, Call{std::move(operand), arguments()});
    } else {
      return operand;
    }
  }
}

ExpressionPtr ExpressionParser::member(ExpressionPtr object) {
  const Position at = tokens_.take().at;
  if (tokens_.now().kind == TokenKind::integer) {
    return make_expression(at, Item{std::move(object), number()});
  }
  return make_expression(
      at, Member{std::move(object), tokens_.expect(TokenKind::name, "the name of a member").text});
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const Position at = tokens_.take().at;
  const auto bound = [&]() -> ExpressionPtr {
    return tokens_.now().is_sign(":") || tokens_.now().is_sign("]") ? nullptr : conditional();
  };
  ExpressionPtr first = bound();
  if (first != nullptr && tokens_.skip_sign("]")) {
    return make_expression(at, Item{std::move(object), std::move(first)});
  }
  tokens_.expect_sign(":");
  ExpressionPtr end = bound();
  ExpressionPtr step = tokens_.skip_sign(":") ? bound() : nullptr;
  tokens_.expect_sign("]");
  return make_expression(
      at, Slice{std::move(object), std::move(first), std::move(end), std::move(step)});
}

Arguments ExpressionParser::arguments() {
  const Nested nested(*this);
  tokens_.expect_sign("(");
  Arguments all;
  bool first = true;
  while (!tokens_.skip_sign(")")) {
    if (!std::exchange(first, false)) {
      tokens_.expect_sign(",");
      if (tokens_.skip_sign(")")) break;
    }
    if (tokens_.now().is_sign("*") || tokens_.now().is_sign("**")) {
      refuse_at(tokens_.now().at, ErrorCode::unsupported,
                "arguments from a list or a dict (* and **) are not supported");
    }
    if (tokens_.now().kind == TokenKind::name && tokens_.after(1).is_sign("=")) {
      std::string key = tokens_.take().text;
      tokens_.take();
      all.named.emplace_back(std::move(key), conditional());
    } else if (!all.named.empty()) {
      tokens_.refuse_now("another named argument");
    } else {
      all.positional.push_back(conditional());
    }
  }
  return all;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr input) {
  for (;;) {
    if (tokens_.skip_sign("|")) {
      input = filter(std::move(input));
    } else if (tokens_.now().is_name("is")) {
      input = test(std::move(input));
    } else if (tokens_.now().is_sign("(")) {
      const Position at = tokens_.now().at;
      input = make_expression(at, Call{std::move(input), arguments()});
    } else {
      return input;
    }
  }
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr input) {
  Token token = tokens_.expect(TokenKind::name, "the name of a filter");
  Filter all{std::move(input), std::move(token.text), {}};
  if (tokens_.now().is_sign("(")) all.arguments = arguments();
  return make_expression(token.at, std::move(all));
}

ExpressionPtr ExpressionParser::filters_of_block(bool first_without_bar) {
  ExpressionPtr input = make_expression(tokens_.now().at, BlockText{});
  if (first_without_bar) input = filter(std::move(input));
  while (tokens_.skip_sign("|")) input = filter(std::move(input));
  return input;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr input) {
  const Position at = tokens_.take().at;
  const bool negated = tokens_.skip_name("not");
  Test all{std::move(input), tokens_.expect(TokenKind::name, "the name of a test").text, {}};
  const Token& token = tokens_.now();
  const bool is_operand = token.kind == TokenKind::name || token.kind == TokenKind::string ||
                          token.kind == TokenKind::integer || token.kind == TokenKind::number ||
                          token.is_sign("[") || token.is_sign("{");
  if (token.is_sign("(")) {
    all.arguments = arguments();
  } else if (token.is_name("is")) {
    tokens_.refuse_now("something other than a second test");
  } else if (is_operand && !token.is_name("else") && !token.is_name("or") &&
             !token.is_name("and")) {
    const Nested nested(*this);
    all.arguments.positional.push_back(postfix(primary()));
  }
  ExpressionPtr result = make_expression(at, std::move(all));
  return negated ? make_expression(at, Unary{UnaryOp::logical_not, std::move(result)})
                 : std::move(result);
}

}  // namespace tessera::model::chat
