#include "model/chat/expression_parser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "model/chat/nodes.h"

namespace tessera::model::chat {
namespace {

constexpr int kMostNested = 60;  // nested brackets and the like

struct BinarySign {
  std::string_view sign;
  BinaryOp op;
};
// From loose to tight; comparisons are between the second and the third.
constexpr int kOr = 0, kAnd = 1, kSum = 2, kProduct = 3, kPower = 4;
std::optional<BinaryOp> binary_op(const Token& token, int level) {
  if (level == kOr) return token.is_name("or") ? std::optional(BinaryOp::logical_or) : std::nullopt;
  if (level == kAnd) {
    return token.is_name("and") ? std::optional(BinaryOp::logical_and) : std::nullopt;
  }
  static constexpr std::array<std::pair<int, BinarySign>, 7> kSigns = {{
      {kSum, {"+", BinaryOp::add}},
      {kSum, {"-", BinaryOp::subtract}},
      {kProduct, {"*", BinaryOp::multiply}},
      {kProduct, {"/", BinaryOp::divide}},
      {kProduct, {"//", BinaryOp::floor_divide}},
      {kProduct, {"%", BinaryOp::modulo}},
      {kPower, {"**", BinaryOp::power}},
  }};
  for (const auto& [at_level, entry] : kSigns) {
    if (at_level == level && token.is_sign(entry.sign)) return entry.op;
  }
  return std::nullopt;
}

std::optional<CompareOp> compare_op(const Token& token) {
  static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kSigns = {{
      {"==", CompareOp::eq},
      {"!=", CompareOp::ne},
      {"<", CompareOp::lt},
      {"<=", CompareOp::le},
      {">", CompareOp::gt},
      {">=", CompareOp::ge},
  }};
  for (const auto& [sign, op] : kSigns) {
    if (token.is_sign(sign)) return op;
  }
  return std::nullopt;
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nested_ > kMostNested) {
    refuse_at(parser_.tokens_.now().at, ErrorCode::unsupported,
              fmt::format("expressions are nested more than {} deep", kMostNested));
  }
}

ExpressionPtr ExpressionParser::expression() { return conditional(); }

ExpressionPtr ExpressionParser::conditional() {
  const Nested nested(*this);
  ExpressionPtr value = binary(kOr);
  while (tokens_.now().is_name("if")) {
    const Position at = tokens_.take().at;
    ExpressionPtr condition = binary(kOr);
    ExpressionPtr no = tokens_.skip_name("else") ? conditional() : nullptr;
    value = make_expression(at, Conditional{std::move(condition), std::move(value), std::move(no)});
  }
  return value;
}

ExpressionPtr ExpressionParser::binary(int level) {
  const auto operand = [&] {
    switch (level) {
      case kOr:
        return binary(kAnd);
      case kAnd:
        return logical_not();
      case kSum:
        return concatenation();
      case kProduct:
        return binary(kPower);
      default:
        return unary(true);
    }
  };
  ExpressionPtr left = operand();
  while (const auto op = binary_op(tokens_.now(), level)) {
    const Position at = tokens_.take().at;
    ExpressionPtr right = operand();
    left = make_expression(at, Binary{*op, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_not() {
  if (!tokens_.now().is_name("not")) return comparison();
  const Nested nested(*this);
  const Position at = tokens_.take().at;
  return make_expression(at, Unary{UnaryOp::logical_not, logical_not()});
}

ExpressionPtr ExpressionParser::comparison() {
  const Position at = tokens_.now().at;
  Comparison all{binary(kSum), {}};
  for (;;) {
    if (const auto op = compare_op(tokens_.now())) {
      tokens_.take();
      all.rest.emplace_back(*op, binary(kSum));
    } else if (tokens_.skip_name("in")) {
      all.rest.emplace_back(CompareOp::in, binary(kSum));
    } else if (tokens_.now().is_name("not") && tokens_.after(1).is_name("in")) {
      tokens_.take();
      tokens_.take();
      all.rest.emplace_back(CompareOp::not_in, binary(kSum));
    } else {
      break;
    }
  }
  return all.rest.empty() ? std::move(all.first) : make_expression(at, std::move(all));
}

ExpressionPtr ExpressionParser::concatenation() {
  const Position at = tokens_.now().at;
  Concatenation all;
  all.parts.push_back(binary(kProduct));
  while (tokens_.skip_sign("~")) all.parts.push_back(binary(kProduct));
  return all.parts.size() == 1 ? std::move(all.parts[0]) : make_expression(at, std::move(all));
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr value;
  const Position at = tokens_.now().at;
  if (tokens_.now().is_sign("-") || tokens_.now().is_sign("+")) {
    const Nested nested(*this);
    const UnaryOp op = tokens_.take().text == "-" ? UnaryOp::negative : UnaryOp::positive;
    value = make_expression(at, Unary{op, unary(false)});
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters(std::move(value)) : std::move(value);
}

bool ExpressionParser::at_tuple_end() const {
  const Token& token = tokens_.now();
  return token.kind == TokenKind::block_end || token.kind == TokenKind::variable_end ||
         token.is_sign(")") || token.is_name("recursive");
}

ExpressionPtr ExpressionParser::tuple(bool with_conditional) {
  const Position at = tokens_.now().at;
  ListOf all{{}, ListKind::tuple};
  bool has_comma = false;
  do {
    if (has_comma && at_tuple_end()) break;
    all.items.push_back(with_conditional ? conditional() : binary(kOr));
    if (!tokens_.now().is_sign(",")) break;
    has_comma = tokens_.skip_sign(",");
  } while (true);
  return has_comma ? make_expression(at, std::move(all)) : std::move(all.items[0]);
}

Target ExpressionParser::single_target(bool may_be_member) {
  if (tokens_.skip_sign("(")) {
    const Nested nested(*this);
    Target inside = target(may_be_member);
    tokens_.expect_sign(")");
    return inside;
  }
  Token token = tokens_.expect(TokenKind::name, "a name to assign to");
  static constexpr std::array<std::string_view, 6> kConstants = {"true",  "True", "false",
                                                                 "False", "none", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), token.text) != kConstants.end()) {
    refuse_at(token.at, ErrorCode::unsupported,
              fmt::format("nothing can be assigned to {}", token.text));
  }
  Target single{.name = std::move(token.text)};
  if (may_be_member && tokens_.skip_sign(".")) {
    single.member = tokens_.expect(TokenKind::name, "the name of a member").text;
  }
  return single;
}

Target ExpressionParser::target(bool may_be_member) {
  Target first = single_target(may_be_member);
  if (!tokens_.now().is_sign(",")) return first;
  Target all{.is_tuple = true};
  all.parts.push_back(std::move(first));
  while (tokens_.skip_sign(",")) {
    if (tokens_.now().kind != TokenKind::name && !tokens_.now().is_sign("(")) break;
    if (tokens_.now().is_name("in")) break;
    all.parts.push_back(single_target(may_be_member));
  }
  return all;
}

}  // namespace tessera::model::chat
