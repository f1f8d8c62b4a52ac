#include "model/chat/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "model/chat/expression_parser.h"
#include "model/checkpoint/quote.h"

namespace tessera::model::chat {
namespace {

constexpr int kMostBlocks = 50;  // nested

// The statements of Jinja that Tessera recognises but does not support.
constexpr std::array<std::string_view, 8> kRefusedStatements = {
    "include", "import", "from", "extends", "block", "do", "autoescape", "trans"};

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view source) : tokens_(tokens_of(source)) {}

  ParsedTemplate run() {
    Block body = block({});
    if (tokens_.now().kind != TokenKind::end) tokens_.refuse_now("text or a tag");
    return {std::move(body), std::move(literals_)};
  }

 private:
  [[noreturn]] static void refuse(Position at, const std::string& what) {
    refuse_at(at, ErrorCode::unsupported, what);
  }

  template <typename Node>
  static void add(Block& to, Position at, Node node) {
    to.push_back(std::make_unique<const Statement>(Statement{at, std::move(node)}));
  }

  // Up to a block that begins with one of these words, whose word is read next; or to the end.
  Block block(std::initializer_list<std::string_view> ends) {
    const Position start = tokens_.now().at;
    if (++blocks_ > kMostBlocks) {
      refuse(start, fmt::format("blocks are nested more than {} deep", kMostBlocks));
    }
    Block body;
    for (;;) {
      const Token& token = tokens_.now();
      if (token.kind == TokenKind::data) {
        literals_.push_back(token.text);
        add(body, token.at, Data{Text::literal(token.text)});
        tokens_.take();
      } else if (token.kind == TokenKind::variable_begin) {
        const Position at = tokens_.take().at;
        ExpressionPtr value = expressions_.tuple();
        tokens_.expect(TokenKind::variable_end, "'}}'");
        add(body, at, Print{std::move(value)});
      } else if (token.kind == TokenKind::block_begin) {
        tokens_.take();
        const Token& word = tokens_.now();
        if (word.kind != TokenKind::name) tokens_.refuse_now("the name of a statement");
        if (std::find(ends.begin(), ends.end(), word.text) != ends.end()) break;
        statement(body);
      } else if (ends.size() == 0) {
        break;
      } else {
        refuse(start, fmt::format("the block that begins here has no {}", *(ends.end() - 1)));
      }
    }
    --blocks_;
    return body;
  }

  // The end of the block whose last word is read next.
  void close() {
    tokens_.take();
    close_tag();
  }
  void close_tag() { tokens_.expect(TokenKind::block_end, "'%}'"); }

  void statement(Block& to) {
    const Token word = tokens_.take();
    using Parse = void (TemplateParser::*)(Block&, Position);
    static constexpr std::array<std::pair<std::string_view, Parse>, 10> kStatements = {{
        {"if", &TemplateParser::parse_if},
        {"for", &TemplateParser::parse_for},
        {"set", &TemplateParser::parse_set},
        {"macro", &TemplateParser::parse_macro},
        {"call", &TemplateParser::parse_call},
        {"filter", &TemplateParser::parse_filter},
        {"with", &TemplateParser::parse_with},
        {"generation", &TemplateParser::parse_generation},
        {"break", &TemplateParser::parse_break},
        {"continue", &TemplateParser::parse_continue},
    }};
    for (const auto& [name, parse] : kStatements) {
      if (name == word.text) return (this->*parse)(to, word.at);
    }
    if (std::find(kRefusedStatements.begin(), kRefusedStatements.end(), word.text) !=
        kRefusedStatements.end()) {
      refuse(word.at, fmt::format("'{}' is not supported in chat templates", word.text));
    }
    refuse(word.at, fmt::format("{} is not a statement, or ends a block that was not begun",
                                in_quotes(word.text)));
  }

  void parse_if(Block& to, Position at) {
    If all;
    ExpressionPtr condition = expressions_.tuple();
    for (;;) {
      close_tag();
      Block body = block({"elif", "else", "endif"});
      all.branches.emplace_back(std::move(condition), std::move(body));
      if (!tokens_.skip_name("elif")) break;
      condition = expressions_.tuple();
    }
    if (tokens_.skip_name("else")) {
      close_tag();
      all.otherwise = block({"endif"});
    }
    close();
    add(to, at, std::move(all));
  }

  void parse_for(Block& to, Position at) {
    For all{
        .target = expressions_.target(false), .items = {}, .test = {}, .body = {}, .otherwise = {}};
    tokens_.expect_name("in");
    all.items = expressions_.tuple(false);
    if (tokens_.skip_name("if")) all.test = expressions_.expression();
    if (tokens_.now().is_name("recursive")) {
      refuse(tokens_.now().at, "'recursive' loops are not supported");
    }
    close_tag();
    ++loops_;
    all.body = block({"else", "endfor"});
    --loops_;
    if (tokens_.skip_name("else")) {
      close_tag();
      all.otherwise = block({"endfor"});
    }
    close();
    add(to, at, std::move(all));
  }

  void parse_set(Block& to, Position at) {
    Target target = expressions_.target(true);
    if (tokens_.skip_sign("=")) {
      ExpressionPtr value = expressions_.tuple();
      close_tag();
      return add(to, at, Set{std::move(target), std::move(value)});
    }
    ExpressionPtr filter =
        tokens_.now().is_sign("|") ? expressions_.filters_of_block(false) : nullptr;
    close_tag();
    Block body = own_block("endset");
    add(to, at, SetBlock{std::move(target), std::move(filter), std::move(body)});
  }

  // A block in which break and continue cannot act on a loop around it.
  Block own_block(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Block body = block({end});
    close();
    loops_ = loops;
    return body;
  }

  // (a, b=1)
  void parse_parameters(Macro& macro) {
    tokens_.expect_sign("(");
    while (!tokens_.skip_sign(")")) {
      if (!macro.parameters.empty()) tokens_.expect_sign(",");
      macro.parameters.push_back(tokens_.expect(TokenKind::name, "the name of a parameter").text);
      if (tokens_.skip_sign("=")) {
        macro.defaults.push_back(expressions_.expression());
      } else if (!macro.defaults.empty()) {
        tokens_.refuse_now("'=' and a default, as after the parameter before it,");
      }
    }
  }

  void parse_macro_body(Macro& macro, std::string_view end) {
    const auto outside = expressions_.exchange_special_names({});
    macro.body = own_block(end);
    const auto used = expressions_.exchange_special_names(outside);
    macro.uses_varargs = used.varargs;
    macro.uses_kwargs = used.kwargs;
    macro.uses_caller = used.caller;
  }

  void parse_macro(Block& to, Position at) {
    Macro macro;
    macro.name = tokens_.expect(TokenKind::name, "the name of a macro").text;
    parse_parameters(macro);
    close_tag();
    parse_macro_body(macro, "endmacro");
    add(to, at, MacroDefinition{std::make_unique<const Macro>(std::move(macro))});
  }

  void parse_call(Block& to, Position at) {
    Macro caller;
    caller.name = "caller";
    if (tokens_.now().is_sign("(")) parse_parameters(caller);
    ExpressionPtr call = expressions_.expression();
    if (!std::holds_alternative<Call>(call->node)) refuse(at, "'call' needs a call of a macro");
    close_tag();
    parse_macro_body(caller, "endcall");
    add(to, at, CallBlock{std::move(call), std::make_unique<const Macro>(std::move(caller))});
  }

  void parse_filter(Block& to, Position at) {
    ExpressionPtr filter = expressions_.filters_of_block(true);
    close_tag();
    Block body = own_block("endfilter");
    add(to, at, FilterBlock{std::move(filter), std::move(body)});
  }

  void parse_with(Block& to, Position at) {
    With all;
    while (tokens_.now().kind != TokenKind::block_end) {
      if (!all.values.empty()) tokens_.expect_sign(",");
      Token name = tokens_.expect(TokenKind::name, "a name to assign to");
      tokens_.expect_sign("=");
      all.values.emplace_back(Target{.name = std::move(name.text)}, expressions_.expression());
    }
    close_tag();
    all.body = block({"endwith"});
    close();
    add(to, at, std::move(all));
  }

  // Marks what a model is trained on; the text is the same.
  void parse_generation(Block& to, Position at) {
    close_tag();
    With all;
    all.body = own_block("endgeneration");
    add(to, at, std::move(all));
  }

  void check_in_loop(Position at, std::string_view word) const {
    if (loops_ == 0) refuse(at, fmt::format("'{}' is not inside a loop", word));
  }
  void parse_break(Block& to, Position at) {
    check_in_loop(at, "break");
    close_tag();
    add(to, at, Break{});
  }
  void parse_continue(Block& to, Position at) {
    check_in_loop(at, "continue");
    close_tag();
    add(to, at, Continue{});
  }

  TokenStream tokens_;
  std::vector<std::string> literals_;
  ExpressionParser expressions_{tokens_, literals_};
  int blocks_ = 0, loops_ = 0;
};

}  // namespace

ParsedTemplate parse_template(std::string_view source) { return TemplateParser(source).run(); }

}  // namespace tessera::model::chat
