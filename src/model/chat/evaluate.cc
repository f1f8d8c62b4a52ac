#include <utility>

#include "model/chat/access.h"
#include "model/chat/dict.h"
#include "model/chat/evaluator.h"
#include "model/chat/filters.h"
#include "model/chat/operators.h"
#include "model/chat/tests.h"
#include "model/chat/write_value.h"

namespace tessera::model::chat {

Value Evaluator::evaluate(const Expression& expression) {
  const Level level(run_);
  run_.at = expression.at;
  run_.step();
  Value value = std::visit([&](const auto& node) { return value_of(node); }, expression.node);
  return value;
}

Value Evaluator::value_of(const Literal& node) { return node.value; }

Value Evaluator::value_of(const Name& node) {
  if (const Value* found = scope_->find(run_, node.name)) return *found;
  return make_undefined(fmt::format("'{}' is undefined", node.name));
}

Value Evaluator::value_of(const ListOf& node) {
  std::vector<Value> items;
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item));
  return make_list(run_, std::move(items), node.kind);
}

Value Evaluator::value_of(const DictOf& node) {
  DictBuilder dict(run_);
  for (const auto& [key, value] : node.entries) {
    const Value at = evaluate(*key);
    dict.set(at, evaluate(*value));
  }
  return dict.take();
}

Value Evaluator::value_of(const Unary& node) {
  const Position at = run_.at;
  const Value operand = evaluate(*node.operand);
  run_.at = at;
  return unary_value(run_, node.op, operand);
}

Value Evaluator::value_of(const Binary& node) {
  const Position at = run_.at;
  Value left = evaluate(*node.left);
  if (node.op == BinaryOp::logical_and) return is_true(left) ? evaluate(*node.right) : left;
  if (node.op == BinaryOp::logical_or) return is_true(left) ? left : evaluate(*node.right);
  const Value right = evaluate(*node.right);
  run_.at = at;
  return binary_value(run_, node.op, left, right);
}

Value Evaluator::value_of(const Concatenation& node) {
  TextBuilder out(run_);
  for (const ExpressionPtr& part : node.parts) {
    const Value value = evaluate(*part);
    run_.at = part->at;
    out.add(to_text(run_, value));
  }
  return out.take();
}

Value Evaluator::value_of(const Comparison& node) {
  const Position at = run_.at;
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    run_.at = at;
    if (!compare_values(run_, op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::value_of(const Conditional& node) {
  if (is_true(evaluate(*node.test))) return evaluate(*node.yes);
  if (node.no != nullptr) return evaluate(*node.no);
  return make_undefined("the condition is false, and there is no else");
}

Value Evaluator::value_of(const Member& node) {
  const Position at = run_.at;
  const Value object = evaluate(*node.object);
  run_.at = at;
  return member_of(run_, object, node.name);
}

Value Evaluator::value_of(const Item& node) {
  const Position at = run_.at;
  const Value object = evaluate(*node.object);
  const Value key = evaluate(*node.key);
  run_.at = at;
  return item_of(run_, object, key);
}

Value Evaluator::value_of(const Slice& node) {
  const Position at = run_.at;
  const Value object = evaluate(*node.object);
  const auto bound = [&](const ExpressionPtr& part) -> std::optional<std::int64_t> {
    if (part == nullptr) return std::nullopt;
    const Value value = evaluate(*part);
    run_.at = part->at;
    if (value.is<None>()) return std::nullopt;
    if (!is_integer(value)) run_.refuse("a slice needs whole numbers, not {}", type_name(value));
    return integer_of(value);
  };
  const SliceBounds bounds{bound(node.begin), bound(node.end), bound(node.step)};
  run_.at = at;
  return slice_of(run_, object, bounds);
}

CallArguments Evaluator::evaluate(const Arguments& arguments) {
  CallArguments values;
  for (const ExpressionPtr& each : arguments.positional) {
    values.positional.push_back(evaluate(*each));
  }
  for (const auto& [name, each] : arguments.named) values.named.emplace_back(name, evaluate(*each));
  return values;
}

Value Evaluator::call(const Value& callee, CallArguments& arguments) {
  if (const auto* undefined = callee.as<Undefined>()) run_.refuse("{}", *undefined->reason);
  const auto* function = callee.as<Function>();
  if (function == nullptr) run_.refuse("a {} cannot be called", type_name(callee));
  run_.step();
  return (*function)->call(run_, arguments);
}

Value Evaluator::value_of(const Call& node) {
  const Position at = run_.at;
  const Value callee = evaluate(*node.callee);
  CallArguments arguments = evaluate(node.arguments);
  run_.at = at;
  return call(callee, arguments);
}

Value Evaluator::value_of(const Filter& node) {
  const Position at = run_.at;
  const Value input = evaluate(*node.input);
  const CallArguments arguments = evaluate(node.arguments);
  run_.at = at;
  return apply_filter(run_, node.name, input, arguments);
}

Value Evaluator::value_of(const Test& node) {
  const Position at = run_.at;
  const Value input = evaluate(*node.input);
  const CallArguments arguments = evaluate(node.arguments);
  run_.at = at;
  return passes_test(run_, node.name, input, arguments);
}

Value Evaluator::value_of(const BlockText& /*node*/) { return block_texts_.back(); }

}  // namespace tessera::model::chat
