#include "model/chat/nodes.h"

#include <algorithm>
#include <initializer_list>

namespace tessera::model::chat {
namespace {

constexpr int kMostExpressionDepth = 200;

int deepest(std::initializer_list<const ExpressionPtr*> parts) {
  int depth = 0;
  for (const ExpressionPtr* part : parts) {
    if (*part != nullptr) depth = std::max(depth, (*part)->depth);
  }
  return depth;
}

int deepest(const std::vector<ExpressionPtr>& parts) {
  int depth = 0;
  for (const ExpressionPtr& part : parts) depth = std::max(depth, part->depth);
  return depth;
}

int deepest(const Arguments& arguments) {
  int depth = deepest(arguments.positional);
  for (const auto& [name, value] : arguments.named) depth = std::max(depth, value->depth);
  return depth;
}

}  // namespace

int depth_of_parts(const Literal& /*node*/) { return 0; }
int depth_of_parts(const Name& /*node*/) { return 0; }
int depth_of_parts(const BlockText& /*node*/) { return 0; }
int depth_of_parts(const ListOf& node) { return deepest(node.items); }
int depth_of_parts(const Unary& node) { return deepest({&node.operand}); }
int depth_of_parts(const Binary& node) { return deepest({&node.left, &node.right}); }
int depth_of_parts(const Concatenation& node) { return deepest(node.parts); }
int depth_of_parts(const Conditional& node) { return deepest({&node.test, &node.yes, &node.no}); }
int depth_of_parts(const Member& node) { return deepest({&node.object}); }
int depth_of_parts(const Item& node) { return deepest({&node.object, &node.key}); }

int depth_of_parts(const DictOf& node) {
  int depth = 0;
  for (const auto& [key, value] : node.entries) depth = std::max(depth, deepest({&key, &value}));
  return depth;
}

int depth_of_parts(const Comparison& node) {
  int depth = deepest({&node.first});
  for (const auto& [op, operand] : node.rest) depth = std::max(depth, operand->depth);
  return depth;
}

int depth_of_parts(const Slice& node) {
  return deepest({&node.object, &node.begin, &node.end, &node.step});
}

int depth_of_parts(const Call& node) {
  return std::max(deepest({&node.callee}), deepest(node.arguments));
}

int depth_of_parts(const Filter& node) {
  return std::max(deepest({&node.input}), deepest(node.arguments));
}

int depth_of_parts(const Test& node) {
  return std::max(deepest({&node.input}), deepest(node.arguments));
}

int checked_expression_depth(Position at, int of_parts) {
  if (of_parts >= kMostExpressionDepth) {
    refuse_at(
        at, ErrorCode::unsupported,
        fmt::format("an expression is nested more than {} deep, or has a longer row of operators",
                    kMostExpressionDepth));
  }
  return of_parts + 1;
}

}  // namespace tessera::model::chat
