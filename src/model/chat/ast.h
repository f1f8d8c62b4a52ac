// A template as a tree.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat/value.h"

namespace tessera::model::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;
struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Arguments {
  std::vector<ExpressionPtr> positional{};
  std::vector<std::pair<std::string, ExpressionPtr>> named{};
};

// --- expressions

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListOf {
  std::vector<ExpressionPtr> items;
  ListKind kind;
};
struct DictOf {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOp : std::uint8_t { negative, positive, logical_not };
struct Unary {
  UnaryOp op;
  ExpressionPtr operand;
};
enum class BinaryOp : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  logical_and,
  logical_or,
};
struct Binary {
  BinaryOp op;
  ExpressionPtr left, right;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
enum class CompareOp : std::uint8_t { eq, ne, lt, le, gt, ge, in, not_in };
struct Comparison {  // a < b <= c
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
struct Conditional {  // yes if test else no
  ExpressionPtr test, yes;
  ExpressionPtr no;  // may be null
};
struct Member {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Item {  // object[key]
  ExpressionPtr object, key;
};
struct Slice {  // object[begin:end:step]; each of the three may be null
  ExpressionPtr object, begin, end, step;
};
struct Call {
  ExpressionPtr callee;
  Arguments arguments;
};
struct Filter {  // input | name(arguments)
  ExpressionPtr input;
  std::string name;
  Arguments arguments;
};
struct Test {  // input is name(arguments)
  ExpressionPtr input;
  std::string name;
  Arguments arguments;
};
// The text of the block that a filter of {% filter %} or {% set %} is applied to.
struct BlockText {};

struct Expression {
  Position at;
  int depth;  // of nested expressions, itself included
  std::variant<Literal, Name, ListOf, DictOf, Unary, Binary, Concatenation, Comparison, Conditional,
               Member, Item, Slice, Call, Filter, Test, BlockText>
      node;
};

// --- statements

// The target of an assignment: a name, a member of a namespace, or several of these.
struct Target {
  std::string name{};
  std::string member{};
  std::vector<Target> parts{};
  bool is_tuple = false;
};

struct Data {
  Text text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr test;  // may be null
  Block body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // may be null
  Block body;
};
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Block body;
};
struct MacroDefinition {
  std::unique_ptr<const Macro> macro;
};
struct CallBlock {  // {% call(parameters) callee(...) %}: the block is a macro, caller()
  ExpressionPtr call;
  std::unique_ptr<const Macro> caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;  // none: {% generation %}
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  Position at;
  std::variant<Data, Print, If, For, Set, SetBlock, MacroDefinition, CallBlock, FilterBlock, With,
               Break, Continue>
      node;
};

}  // namespace tessera::model::chat
