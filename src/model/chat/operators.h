// Arithmetic, on strings and lists too, as in Python.
#pragma once

#include "model/chat/ast.h"
#include "model/chat/value.h"

namespace tessera::model::chat {

// All but `and` and `or`, which need not evaluate both sides.
Value binary_value(Run& run, BinaryOp op, const Value& a, const Value& b);
Value unary_value(Run& run, UnaryOp op, const Value& operand);
bool compare_values(Run& run, CompareOp op, const Value& a, const Value& b);
// "%s is %d" with its values; other directives are refused.
Value format_percent(Run& run, const Text& format, const std::vector<Value>& values);

}  // namespace tessera::model::chat
