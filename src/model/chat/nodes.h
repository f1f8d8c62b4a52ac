// Makes expressions, no deeper than the evaluator can follow.
#pragma once

#include "model/chat/ast.h"

namespace tessera::model::chat {

// The depth of the deepest part, 0 if there is none.
int depth_of_parts(const Literal& node);
int depth_of_parts(const Name& node);
int depth_of_parts(const ListOf& node);
int depth_of_parts(const DictOf& node);
int depth_of_parts(const Unary& node);
int depth_of_parts(const Binary& node);
int depth_of_parts(const Concatenation& node);
int depth_of_parts(const Comparison& node);
int depth_of_parts(const Conditional& node);
int depth_of_parts(const Member& node);
int depth_of_parts(const Item& node);
int depth_of_parts(const Slice& node);
int depth_of_parts(const Call& node);
int depth_of_parts(const Filter& node);
int depth_of_parts(const Test& node);
int depth_of_parts(const BlockText& node);

// Refuses what is too deep. A long row of sums is deep too: each sum contains the ones before it.
int checked_expression_depth(Position at, int of_parts);

template <typename Node>
ExpressionPtr make_expression(Position at, Node node) {
  const int depth = checked_expression_depth(at, depth_of_parts(node));
  return std::make_unique<const Expression>(Expression{at, depth, std::move(node)});
}

}  // namespace tessera::model::chat
