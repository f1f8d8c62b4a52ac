// Runs a template: expressions to values (evaluate.cc), statements to text (execute.cc).
#pragma once

#include <memory>
#include <vector>

#include "model/chat/ast.h"
#include "model/chat/scope.h"

namespace tessera::model::chat {

class Evaluator {
 public:
  // `globals`: the names that the whole template sees. Both must outlive it.
  Evaluator(Run& run, const Scope& globals) : run_(run), globals_(globals) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  Text render(const Block& body);

  // What a macro writes. `scope` is where it was made.
  Text call_macro(const Macro& macro, const Scope& scope, const CallArguments& arguments);

 private:
  enum class Flow : std::uint8_t { normal, leave_loop, next_item };
  class Inside;  // an inner scope, for as long as it lives

  Value evaluate(const Expression& expression);
  Value value_of(const Literal& node);
  Value value_of(const Name& node);
  Value value_of(const ListOf& node);
  Value value_of(const DictOf& node);
  Value value_of(const Unary& node);
  Value value_of(const Binary& node);
  Value value_of(const Concatenation& node);
  Value value_of(const Comparison& node);
  Value value_of(const Conditional& node);
  Value value_of(const Member& node);
  Value value_of(const Item& node);
  Value value_of(const Slice& node);
  Value value_of(const Call& node);
  Value value_of(const Filter& node);
  Value value_of(const Test& node);
  Value value_of(const BlockText& node);
  CallArguments evaluate(const Arguments& arguments);
  Value call(const Value& callee, CallArguments& arguments);

  Flow execute(const Block& block, TextBuilder& out);
  Flow execute(const Statement& statement, TextBuilder& out);
  Flow run_node(const Data& node, TextBuilder& out);
  Flow run_node(const Print& node, TextBuilder& out);
  Flow run_node(const If& node, TextBuilder& out);
  Flow run_node(const For& node, TextBuilder& out);
  Flow run_node(const Set& node, TextBuilder& out);
  Flow run_node(const SetBlock& node, TextBuilder& out);
  Flow run_node(const MacroDefinition& node, TextBuilder& out);
  Flow run_node(const CallBlock& node, TextBuilder& out);
  Flow run_node(const FilterBlock& node, TextBuilder& out);
  Flow run_node(const With& node, TextBuilder& out);
  Flow run_node(const Break& node, TextBuilder& out);
  Flow run_node(const Continue& node, TextBuilder& out);

  void assign(const Target& target, const Value& value);
  Text text_of(const Block& block);
  Value filtered(const ExpressionPtr& filter, const Text& text);
  Value make_macro(const Macro& macro);
  void place_macro_arguments(const Macro& macro, const CallArguments& arguments);

  Run& run_;
  const Scope& globals_;
  Scope* scope_ = nullptr;
  std::vector<Text> block_texts_;  // the texts that filters are being applied to
  // Scopes that macros were made in live as long as the rendering.
  std::vector<std::unique_ptr<Scope>> kept_;
  Charge kept_charge_{run_, 0};
};

}  // namespace tessera::model::chat
