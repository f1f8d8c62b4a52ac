#include "model/chat/methods.h"

#include <algorithm>
#include <array>
#include <span>

namespace tessera::model::chat {
namespace {

class BoundMethod : public Callable {
 public:
  BoundMethod(Value object, Method method) : object_(std::move(object)), method_(method) {}
  Value call(Run& run, CallArguments& arguments) const override {
    return method_(run, object_, arguments);
  }

 private:
  Value object_;
  Method method_;
};

constexpr std::array<std::string_view, 14> kChanging = {
    "append", "clear",   "extend", "insert",     "pop",      "popitem",     "remove",
    "sort",   "reverse", "update", "setdefault", "fromkeys", "__setitem__", "__delitem__"};
constexpr std::array<std::string_view, 8> kRareOfStrings = {
    "casefold", "encode",       "expandtabs", "format_map",
    "istitle",  "isidentifier", "maketrans",  "translate"};

bool has_name(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::optional<Value> method_of(Run& run, const Value& object, std::string_view name) {
  const bool row = object.is<List>() && (*object.as<List>())->kind <= ListKind::tuple;
  Method method = nullptr;
  if (object.is<Text>()) {
    method = string_method(name);
    if (has_name(kRareOfStrings, name)) run.refuse("the method '{}' of str is not supported", name);
  } else if (row) {
    method = list_method(name);
  } else if (object.is<Dict>()) {
    method = dict_method(name);
  } else {
    return std::nullopt;
  }
  if (!object.is<Text>() && has_name(kChanging, name)) {
    run.refuse("a template may not change a {} ('{}')", type_name(object), name);
  }
  if (method == nullptr) return std::nullopt;
  return Value(Function(std::make_shared<const BoundMethod>(object, method)));
}

}  // namespace tessera::model::chat
