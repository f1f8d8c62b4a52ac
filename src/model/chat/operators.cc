#include "model/chat/operators.h"

#include <array>
#include <cmath>

#include "model/chat/compare.h"
#include "model/chat/write_value.h"

namespace tessera::model::chat {
namespace {

constexpr std::array<std::string_view, 7> kOpSigns = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void refuse_operands(Run& run, BinaryOp op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (const auto* undefined = value->as<Undefined>()) run.refuse("{}", *undefined->reason);
  }
  run.refuse("'{}' does not take {} and {}", kOpSigns[static_cast<std::size_t>(op)], type_name(a),
             type_name(b));
}

std::int64_t checked_integer(const Run& run, bool overflows, std::int64_t result) {
  if (overflows) run.refuse("a number does not fit into 64 bits");
  return result;
}

// Rounds down, as Python does. `b` is not 0.
std::int64_t floor_quotient(const Run& run, std::int64_t a, std::int64_t b) {
  if (b == -1) {
    std::int64_t result = 0;
    const bool overflows = __builtin_sub_overflow(std::int64_t{0}, a, &result);
    return checked_integer(run, overflows, result);
  }
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_remainder(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

std::int64_t integer_power(const Run& run, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  bool overflows = false;
  while (exponent > 0 && !overflows) {
    if (exponent % 2 == 1) overflows = __builtin_mul_overflow(result, base, &result);
    exponent /= 2;
    if (exponent > 0 && !overflows) overflows = __builtin_mul_overflow(base, base, &base);
  }
  return checked_integer(run, overflows, result);
}

Value integer_result(const Run& run, BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case BinaryOp::add: {
      const bool overflows = __builtin_add_overflow(a, b, &result);
      return checked_integer(run, overflows, result);
    }
    case BinaryOp::subtract: {
      const bool overflows = __builtin_sub_overflow(a, b, &result);
      return checked_integer(run, overflows, result);
    }
    case BinaryOp::multiply: {
      const bool overflows = __builtin_mul_overflow(a, b, &result);
      return checked_integer(run, overflows, result);
    }
    case BinaryOp::floor_divide:
      return floor_quotient(run, a, b);
    case BinaryOp::modulo:
      return floor_remainder(a, b);
    default:
      return integer_power(run, a, b);
  }
}

double float_result(const Run& run, BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::subtract:
      return a - b;
    case BinaryOp::multiply:
      return a * b;
    case BinaryOp::divide:
      return a / b;
    case BinaryOp::floor_divide:
      return std::floor((a - float_remainder(a, b)) / b + 0.5);
    case BinaryOp::modulo:
      return float_remainder(a, b);
    default:
      break;
  }
  const double power = std::pow(a, b);
  if (!std::isfinite(power) && std::isfinite(a) && std::isfinite(b)) {
    run.refuse("a power is too large, or not a real number");
  }
  return power;
}

Value number_result(const Run& run, BinaryOp op, const Value& a, const Value& b) {
  const bool divides =
      op == BinaryOp::divide || op == BinaryOp::floor_divide || op == BinaryOp::modulo;
  if (divides && number_of(b) == 0) run.refuse("a number is divided by zero");
  const bool whole = is_integer(a) && is_integer(b) && op != BinaryOp::divide &&
                     !(op == BinaryOp::power && number_of(b) < 0);
  if (whole) return integer_result(run, op, integer_of(a), integer_of(b));
  if (op == BinaryOp::power && number_of(a) == 0 && number_of(b) < 0) {
    run.refuse("a number is divided by zero");
  }
  return float_result(run, op, number_of(a), number_of(b));
}

void add_escaped(const Text& text, TextBuilder& out) {
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::array<std::string_view, 5> kEscapes = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  const std::string_view bytes = text.view();
  std::size_t plain = 0;
  for (std::size_t at = bytes.find_first_of(kSpecial); at != std::string_view::npos;
       at = bytes.find_first_of(kSpecial, plain)) {
    out.add(text, plain, at);
    out.instead_of(text, at, at + 1, kEscapes[kSpecial.find(bytes[at])]);
    plain = at + 1;
  }
  out.add(text, plain, bytes.size());
}

Value joined(Run& run, const Text& a, const Text& b) {
  TextBuilder builder(run);
  const bool markup = a.is_markup() || b.is_markup();
  for (const Text* text : {&a, &b}) {
    if (markup && !text->is_markup()) {
      add_escaped(*text, builder);
    } else {
      builder.add(*text);
    }
  }
  return builder.take(markup);
}

Value joined(Run& run, const ListData& a, const ListData& b) {
  const Charge charge(run, (a.items.size() + b.items.size()) * sizeof(Value));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return make_list(run, std::move(items), a.kind);
}

bool is_row(const Value& value) {  // a list or a tuple
  const auto* list = value.as<List>();
  return list != nullptr && (*list)->kind <= ListKind::tuple;
}

Value repeated(Run& run, const Value& row, std::int64_t times) {
  if (const auto* text = row.as<Text>()) {
    TextBuilder builder(run);
    for (std::int64_t i = 0; i < times && !text->empty(); ++i) builder.add(*text);
    return builder.take();
  }
  const ListData& list = **row.as<List>();
  std::vector<Value> items;
  Charge charge(run, 0);
  for (std::int64_t i = 0; i < times && !list.items.empty(); ++i) {
    charge.grow(list.items.size() * sizeof(Value));
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return make_list(run, std::move(items), list.kind);
}

bool repeats(const Value& row, const Value& times) {
  return (row.is<Text>() || is_row(row)) && is_integer(times);
}

}  // namespace

Value binary_value(Run& run, BinaryOp op, const Value& a, const Value& b) {
  if (is_number(a) && is_number(b)) return number_result(run, op, a, b);
  if (op == BinaryOp::add) {
    if (a.is<Text>() && b.is<Text>()) return joined(run, *a.as<Text>(), *b.as<Text>());
    if (is_row(a) && is_row(b) && (*a.as<List>())->kind == (*b.as<List>())->kind) {
      return joined(run, **a.as<List>(), **b.as<List>());
    }
  }
  if (op == BinaryOp::multiply) {
    if (repeats(a, b)) return repeated(run, a, integer_of(b));
    if (repeats(b, a)) return repeated(run, b, integer_of(a));
  }
  if (op == BinaryOp::modulo && a.is<Text>()) {
    const auto* list = b.as<List>();
    const bool several = list != nullptr && (*list)->kind == ListKind::tuple;
    return format_percent(run, *a.as<Text>(), several ? (*list)->items : std::vector<Value>{b});
  }
  refuse_operands(run, op, a, b);
}

Value unary_value(Run& run, UnaryOp op, const Value& operand) {
  if (op == UnaryOp::logical_not) return !is_true(operand);
  if (const auto* undefined = operand.as<Undefined>()) run.refuse("{}", *undefined->reason);
  if (!is_number(operand)) {
    run.refuse("a sign cannot be applied to {}", type_name(operand));
  }
  if (op == UnaryOp::positive) {
    return is_integer(operand) ? Value(integer_of(operand)) : operand;
  }
  if (!is_integer(operand)) return -number_of(operand);
  return integer_result(run, BinaryOp::subtract, 0, integer_of(operand));
}

bool compare_values(Run& run, CompareOp op, const Value& a, const Value& b) {
  // NaN: neither less nor equal, so <= is not the opposite of >.
  switch (op) {
    case CompareOp::eq:
      return equal(run, a, b);
    case CompareOp::ne:
      return !equal(run, a, b);
    case CompareOp::lt:
      return less(run, a, b, "<");
    case CompareOp::gt:
      return less(run, b, a, ">");
    case CompareOp::le:
      return less(run, a, b, "<=") || equal(run, a, b);
    case CompareOp::ge:
      return less(run, b, a, ">=") || equal(run, a, b);
    case CompareOp::in:
      return contains(run, b, a);
    case CompareOp::not_in:
      return !contains(run, b, a);
  }
  return false;
}

Value format_percent(Run& run, const Text& format, const std::vector<Value>& values) {
  TextBuilder out(run);
  const std::string_view bytes = format.view();
  std::size_t next = 0, plain = 0;
  for (std::size_t at = bytes.find('%'); at != std::string_view::npos;
       at = bytes.find('%', plain)) {
    out.add(format, plain, at);
    const char kind = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
    plain = at + 2;
    if (kind == '%') {
      out.add(format, at, at + 1);
      continue;
    }
    if (kind != 's' && kind != 'd') {
      run.refuse("of the directives of a format only %s, %d and %% are supported");
    }
    if (next == values.size()) run.refuse("a format has more directives than values");
    const Value& value = values[next++];
    if (kind == 'd' && !is_number(value)) run.refuse("%d needs a number, not {}", type_name(value));
    if (kind == 'd' && !is_integer(value)) run.refuse("%d of a float is not supported");
    out.add(kind == 'd' ? to_text(run, integer_of(value)) : to_text(run, value));
  }
  // Python allows a single value that has items to go unused.
  const bool may_be_left =
      next == 0 && values.size() == 1 &&
      (values[0].is<Dict>() || values[0].is<List>() || values[0].is<Undefined>());
  if (next < values.size() && !may_be_left) {
    run.refuse("a format has fewer directives than values");
  }
  out.add(format, plain, bytes.size());
  return out.take();
}

}  // namespace tessera::model::chat
