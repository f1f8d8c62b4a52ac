#include <algorithm>
#include <utility>

#include "model/chat/dict.h"
#include "model/chat/evaluator.h"
#include "model/chat/inside.h"
#include "model/chat/loop.h"
#include "model/chat/write_value.h"

namespace tessera::model::chat {
namespace {

class MacroFunction : public Callable {
 public:
  MacroFunction(Evaluator& evaluator, const Macro& macro, const Scope& scope)
      : evaluator_(evaluator), macro_(macro), scope_(scope) {}
  Value call(Run& /*run*/, CallArguments& arguments) const override {
    return evaluator_.call_macro(macro_, scope_, arguments);
  }

 private:
  Evaluator& evaluator_;
  const Macro& macro_;
  const Scope& scope_;  // captured: it lives as long as the evaluator
};

}  // namespace

Text Evaluator::render(const Block& body) {
  const Inside root(*this, &globals_);
  return text_of(body);
}

Text Evaluator::text_of(const Block& block) {
  TextBuilder out(run_);
  execute(block, out);
  return out.take();
}

Evaluator::Flow Evaluator::execute(const Block& block, TextBuilder& out) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement, out);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::execute(const Statement& statement, TextBuilder& out) {
  const Level level(run_);
  run_.at = statement.at;
  run_.step();
  return std::visit([&](const auto& node) { return run_node(node, out); }, statement.node);
}

Evaluator::Flow Evaluator::run_node(const Data& node, TextBuilder& out) {
  out.add(node.text);
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_node(const Print& node, TextBuilder& out) {
  const Value value = evaluate(*node.value);
  run_.at = node.value->at;
  out.add(to_text(run_, value));
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_node(const If& node, TextBuilder& out) {
  for (const auto& [condition, body] : node.branches) {
    if (is_true(evaluate(*condition))) return execute(body, out);
  }
  return execute(node.otherwise, out);
}

Evaluator::Flow Evaluator::run_node(const For& node, TextBuilder& out) {
  const Value value = evaluate(*node.items);
  run_.at = node.items->at;
  std::function<bool(const Value&)> test;
  if (node.test != nullptr) {
    test = [this, &node, scope = scope_](const Value& item) {
      const Inside inside(*this, scope);
      assign(node.target, item);
      return is_true(evaluate(*node.test));
    };
  }
  const auto loop = std::make_shared<LoopState>(run_, items_of(run_, value), std::move(test));
  bool any = false;
  while (loop->advance(run_)) {
    any = true;
    const Inside inside(*this);
    scope_->set(run_, "loop", loop);
    assign(node.target, loop->current());
    if (execute(node.body, out) == Flow::leave_loop) break;
  }
  loop->finish();
  if (any) return Flow::normal;
  const Inside inside(*this);
  return execute(node.otherwise, out);
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = items_of(run_, value);
    if (items.size() != target.parts.size()) {
      run_.refuse("{} values cannot be assigned to {} names", items.size(), target.parts.size());
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
  } else if (target.member.empty()) {
    kept_charge_.grow(scope_->captured ? sizeof(Value) : 0);
    scope_->set(run_, target.name, value);
  } else {
    const Value* found = scope_->find(run_, target.name);
    const auto* space = found == nullptr ? nullptr : found->as<Namespace>();
    if (space == nullptr)
      run_.refuse("'{}' is not a namespace, so it has no members to set", target.name);
    (*space)->set(run_, target.member, value);
  }
}

Evaluator::Flow Evaluator::run_node(const Set& node, TextBuilder& /*out*/) {
  const Position at = run_.at;
  const Value value = evaluate(*node.value);
  run_.at = at;
  assign(node.target, value);
  return Flow::normal;
}

Value Evaluator::filtered(const ExpressionPtr& filter, const Text& text) {
  if (filter == nullptr) return text;
  block_texts_.push_back(text);
  Value value = evaluate(*filter);
  block_texts_.pop_back();
  return value;
}

Evaluator::Flow Evaluator::run_node(const SetBlock& node, TextBuilder& /*out*/) {
  const Position at = run_.at;
  Value value;
  {
    const Inside inside(*this);
    value = filtered(node.filter, text_of(node.body));
  }
  run_.at = at;
  assign(node.target, value);
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_node(const FilterBlock& node, TextBuilder& out) {
  const Inside inside(*this);
  const Value value = filtered(node.filter, text_of(node.body));
  out.add(to_text(run_, value));
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_node(const With& node, TextBuilder& out) {
  const Scope* outside = scope_;
  const Inside inside(*this);
  for (const auto& [target, expression] : node.values) {
    Scope* mine = scope_;
    // The values do not see each other.
    Scope view{.parent = outside};
    scope_ = &view;
    Value value = evaluate(*expression);
    scope_ = mine;
    assign(target, value);
  }
  return execute(node.body, out);
}

Evaluator::Flow Evaluator::run_node(const Break& /*node*/, TextBuilder& /*out*/) {
  return Flow::leave_loop;
}
Evaluator::Flow Evaluator::run_node(const Continue& /*node*/, TextBuilder& /*out*/) {
  return Flow::next_item;
}

Value Evaluator::make_macro(const Macro& macro) {
  kept_charge_.grow(sizeof(MacroFunction) + sizeof(Value));
  scope_->capture();
  return Function(std::make_shared<const MacroFunction>(*this, macro, *scope_));
}

Evaluator::Flow Evaluator::run_node(const MacroDefinition& node, TextBuilder& /*out*/) {
  scope_->set(run_, node.macro->name, make_macro(*node.macro));
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_node(const CallBlock& node, TextBuilder& out) {
  const Call& the_call = std::get<Call>(node.call->node);
  const Position at = node.call->at;
  const Value callee = evaluate(*the_call.callee);
  CallArguments arguments = evaluate(the_call.arguments);
  arguments.named.emplace_back("caller", make_macro(*node.caller));
  run_.at = at;
  const Value value = call(callee, arguments);
  out.add(to_text(run_, value));
  return Flow::normal;
}

void Evaluator::place_macro_arguments(const Macro& macro, const CallArguments& arguments) {
  const std::size_t count = macro.parameters.size();
  std::vector<Value> extra;
  for (std::size_t i = count; i < arguments.positional.size(); ++i) {
    extra.push_back(arguments.positional[i]);
  }
  if (!extra.empty() && !macro.uses_varargs) {
    run_.refuse("the macro '{}' takes at most {} arguments, not {}", macro.name, count,
                arguments.positional.size());
  }
  std::vector<const Value*> given(count, nullptr);
  for (std::size_t i = 0; i < std::min(count, arguments.positional.size()); ++i) {
    given[i] = &arguments.positional[i];
  }
  DictBuilder others(run_);
  bool has_caller = false;
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(macro.parameters.begin(), macro.parameters.end(), name);
    if (found != macro.parameters.end()) {
      const Value*& place = given[static_cast<std::size_t>(found - macro.parameters.begin())];
      if (place != nullptr) run_.refuse("the macro '{}' is given '{}' twice", macro.name, name);
      place = &value;
    } else if (name == "caller" && macro.uses_caller) {
      has_caller = true;
      scope_->set(run_, "caller", value);
    } else if (macro.uses_kwargs) {
      others.set(own_text(run_, name), value);
    } else {
      run_.refuse("the macro '{}' has no parameter '{}'", macro.name, name);
    }
  }
  if (macro.uses_caller && !has_caller) {
    scope_->set(run_, "caller", make_undefined("the macro was not called by a call block"));
  }
  if (macro.uses_varargs) scope_->set(run_, "varargs", make_tuple(run_, std::move(extra)));
  if (macro.uses_kwargs) scope_->set(run_, "kwargs", others.take());
  // A default sees the parameters before it. Its own and later ones count as not given.
  for (const std::string& name : macro.parameters) {
    scope_->set(run_, name, make_undefined(fmt::format("the parameter '{}' was not given", name)));
  }
  const std::size_t without_default = count - macro.defaults.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    if (given[i] != nullptr) {
      scope_->set(run_, name, *given[i]);
    } else if (i >= without_default) {
      scope_->set(run_, name, evaluate(*macro.defaults[i - without_default]));
    }
  }
}

Text Evaluator::call_macro(const Macro& macro, const Scope& scope, const CallArguments& arguments) {
  const Level level(run_);
  const Inside inside(*this, &scope);
  place_macro_arguments(macro, arguments);
  return text_of(macro.body);
}

}  // namespace tessera::model::chat
