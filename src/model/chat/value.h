// The values of a template: Python's, as far as templates need them. Strings, lists and dicts never
// change, as in the sandbox that transformers renders in; only a namespace does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat/text.h"

namespace tessera::model::chat {

struct Value;
struct CallArguments;
struct LoopState;

// A name or member that does not exist. It can be written (as nothing), tested and replaced by a
// default; anything else is refused with the reason.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};

enum class ListKind : std::uint8_t { list, tuple, keys, values, items, range };
struct ListData;
using List = std::shared_ptr<const ListData>;
struct DictData;
using Dict = std::shared_ptr<const DictData>;

// The result of map, select and the like: it can be iterated over once. True even if it is empty.
struct GeneratorData;
using Generator = std::shared_ptr<GeneratorData>;

// Namespaces may hold each other, so the rendering owns them all.
struct NamespaceData;
using Namespace = NamespaceData*;

// A macro, a function such as range, or a method with its object.
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value call(Run& run, CallArguments& arguments) const = 0;
};
using Function = std::shared_ptr<const Callable>;
using Loop = std::shared_ptr<LoopState>;

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, Text, List, Dict, Generator, Namespace,
               Function, Loop>
      data{None{}};

  Value() = default;
  template <typename T>
  Value(T value) : data(std::move(value)) {}  // NOLINT: a value is any of these

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&data);
  }
};

struct ListData {
  ListKind kind;
  std::vector<Value> items;
  int depth;  // of nested lists and dicts
  Charge charge;
};

struct GeneratorData {
  std::vector<Value> items;
  int depth;
  Charge charge;
  std::size_t next = 0;
};

struct NamespaceData {
  std::vector<std::pair<std::string, Value>> members;
  Charge charge;

  const Value* find(std::string_view name) const;
  void set(Run& run, std::string_view name, Value value);
};

// The arguments of a call.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

Value make_undefined(std::string reason);
Value make_list(Run& run, std::vector<Value> items, ListKind kind = ListKind::list);
Value make_tuple(Run& run, std::vector<Value> items);
Value make_generator(Run& run, std::vector<Value> items);

bool is_true(const Value& value);
// "a list", "the number 3 is ..."; as Python calls it: str, int, dict.
std::string_view type_name(const Value& value);
// Bools count as 0 and 1.
bool is_integer(const Value& value);
bool is_number(const Value& value);
std::int64_t integer_of(const Value& value);  // of an integer
double number_of(const Value& value);         // of a number

int depth_of(const Value& value);
// Refuses values that nest too deep: code visits them recursively.
int checked_depth(const Run& run, int of_members);

// All items that a loop over the value would see; of a generator, those that are left.
std::vector<Value> items_of(Run& run, const Value& value);

}  // namespace tessera::model::chat
