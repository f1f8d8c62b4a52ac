#include "model/chat/tests.h"

#include <array>

#include "model/chat/arguments.h"
#include "model/chat/compare.h"
#include "model/chat/filters.h"
#include "model/chat/methods.h"
#include "model/chat/operators.h"
#include "model/chat/write_value.h"

namespace tessera::model::chat {
namespace {

void no_arguments(const Run& run, const CallArguments& arguments) {
  placed<0>(run, arguments, "the test", {});
}

const Value& other_value(const Run& run, const CallArguments& arguments) {
  const auto [other] = placed<1>(run, arguments, "the test", {"other"});
  if (other == nullptr) run.refuse("the test needs a value to compare with");
  return *other;
}

template <typename T>
bool holds(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return value.is<T>();
}

bool is_defined(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return !value.is<Undefined>();
}

template <bool kTruth>
bool is_constant(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return value.is<bool>() && *value.as<bool>() == kTruth;
}

bool is_a_number(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return is_number(value);
}

bool is_iterable(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return value.is<Text>() || value.is<List>() || value.is<Dict>() || value.is<Generator>() ||
         value.is<Undefined>() || value.is<Loop>();
}

// Whether the value has a length and items by place or key.
bool is_sequence(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  const auto* list = value.as<List>();
  return value.is<Text>() || value.is<Dict>() || value.is<Undefined>() ||
         (list != nullptr &&
          ((*list)->kind <= ListKind::tuple || (*list)->kind == ListKind::range));
}

bool is_callable(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return value.is<Function>() || value.is<Undefined>() || value.is<Loop>();
}

bool divides(Run& run, const Value& value, const Value& by) {
  const Value rest = binary_value(run, BinaryOp::modulo, value, by);
  return is_number(rest) && number_of(rest) == 0;
}

bool is_even(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return divides(run, value, std::int64_t{2});
}

bool is_odd(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return equal(run, binary_value(run, BinaryOp::modulo, value, std::int64_t{2}), std::int64_t{1});
}

bool is_divisible(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [by] = placed<1>(run, arguments, "divisibleby", {"num"});
  if (by == nullptr) run.refuse("divisibleby needs a number");
  return divides(run, value, *by);
}

template <CompareOp kOp>
bool compares(Run& run, const Value& value, const CallArguments& arguments) {
  return compare_values(run, kOp, value, other_value(run, arguments));
}

bool same_as(Run& run, const Value& value, const CallArguments& arguments) {
  return is_same(value, other_value(run, arguments));
}

bool has_case(Run& run, const Value& value, const CallArguments& arguments,
              std::string_view method) {
  no_arguments(run, arguments);
  return is_true(string_method(method)(run, to_text(run, value), {}));
}
bool is_lower_text(Run& run, const Value& value, const CallArguments& arguments) {
  return has_case(run, value, arguments, "islower");
}
bool is_upper_text(Run& run, const Value& value, const CallArguments& arguments) {
  return has_case(run, value, arguments, "isupper");
}

bool is_filter(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return find_filter(text_argument(run, &value, "filter").view()) != nullptr;
}
bool is_test(Run& run, const Value& value, const CallArguments& arguments) {
  no_arguments(run, arguments);
  return find_test(text_argument(run, &value, "test").view()) != nullptr;
}

bool is_undefined(Run& run, const Value& value, const CallArguments& arguments) {
  return !is_defined(run, value, arguments);
}

struct NamedTest {
  std::string_view name;
  TestFunction test;
};
constexpr std::array<NamedTest, 38> kTests = {{
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", holds<None>},
    {"boolean", holds<bool>},
    {"true", is_constant<true>},
    {"false", is_constant<false>},
    {"integer", holds<std::int64_t>},
    {"float", holds<double>},
    {"number", is_a_number},
    {"string", holds<Text>},
    {"mapping", holds<Dict>},
    {"iterable", is_iterable},
    {"sequence", is_sequence},
    {"callable", is_callable},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"sameas", same_as},
    {"lower", is_lower_text},
    {"upper", is_upper_text},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<CompareOp::in>},
    {"==", compares<CompareOp::eq>},
    {"eq", compares<CompareOp::eq>},
    {"equalto", compares<CompareOp::eq>},
    {"!=", compares<CompareOp::ne>},
    {"ne", compares<CompareOp::ne>},
    {"<", compares<CompareOp::lt>},
    {"lt", compares<CompareOp::lt>},
    {"lessthan", compares<CompareOp::lt>},
    {"<=", compares<CompareOp::le>},
    {"le", compares<CompareOp::le>},
    {">", compares<CompareOp::gt>},
    {"gt", compares<CompareOp::gt>},
    {"greaterthan", compares<CompareOp::gt>},
    {">=", compares<CompareOp::ge>},
    {"ge", compares<CompareOp::ge>},
}};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const NamedTest& each : kTests) {
    if (each.name == name) return each.test;
  }
  return nullptr;
}

bool passes_test(Run& run, std::string_view name, const Value& value,
                 const CallArguments& arguments) {
  const TestFunction test = find_test(name);
  if (test == nullptr) run.refuse("there is no test '{}'", name);
  run.step();
  return test(run, value, arguments);
}

}  // namespace tessera::model::chat
