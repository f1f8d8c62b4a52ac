// The expressions of a template. Their order of precedence is Jinja's, from loose to tight:
// if-else, or, and, not, comparisons, + -, ~, * / // %, **, unary + -, and after an operand . []
// () and then | is.
#pragma once

#include <string_view>
#include <vector>

#include "model/chat/ast.h"
#include "model/chat/token_stream.h"

namespace tessera::model::chat {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, std::vector<std::string>& literals)
      : tokens_(tokens), literals_(literals) {}

  ExpressionPtr expression();
  // One expression, or several with commas between them, which are a tuple. `with_conditional`: an
  // if belongs to the expression.
  ExpressionPtr tuple(bool with_conditional = true);
  // The filters that follow, applied to the text of a block.
  ExpressionPtr filters_of_block(bool first_without_bar);
  Arguments arguments();
  Target target(bool may_be_member);

  // The names varargs, kwargs and caller that have been read since the last call.
  struct SpecialNames {
    bool varargs = false, kwargs = false, caller = false;
  };
  SpecialNames exchange_special_names(SpecialNames names) { return std::exchange(special_, names); }

 private:
  // Limits the parser's own recursion.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  ExpressionPtr conditional();
  ExpressionPtr binary(int level);
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr concatenation();
  ExpressionPtr unary(bool with_filters);
  // ---- operand_parser.cc ----
  ExpressionPtr primary();
  ExpressionPtr name();
  ExpressionPtr strings();
  ExpressionPtr number();
  ExpressionPtr parenthesised();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr operand);
  ExpressionPtr member(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr filters(ExpressionPtr input);
  ExpressionPtr filter(ExpressionPtr input);
  ExpressionPtr test(ExpressionPtr input);

  Target single_target(bool may_be_member);
  bool at_tuple_end() const;

  TokenStream& tokens_;
  std::vector<std::string>& literals_;
  SpecialNames special_{};
  int nested_ = 0;
};

}  // namespace tessera::model::chat
