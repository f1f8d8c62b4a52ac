#include "model/chat/value.h"

#include <algorithm>

#include "model/chat/dict.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

constexpr int kMostDepth = 100;  // of values; JSON from outside has at most 64

int depth_of_all(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return depth;
}

std::vector<Value> characters_of(Run& run, const Text& text) {
  std::vector<Value> characters;
  const std::string_view bytes = text.view();
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    next_code_point(bytes, at);
    run.step();
    characters.emplace_back(part(run, text, begin, at));
  }
  return characters;
}

}  // namespace

Value make_undefined(std::string reason) {
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

int depth_of(const Value& value) {
  if (const auto* list = value.as<List>()) return (*list)->depth;
  if (const auto* dict = value.as<Dict>()) return (*dict)->depth;
  if (const auto* generator = value.as<Generator>()) return (*generator)->depth;
  return 0;
}

int checked_depth(const Run& run, int of_members) {
  if (of_members >= kMostDepth) {
    run.refuse("lists and dicts are nested more than {} deep", kMostDepth);
  }
  return of_members + 1;
}

Value make_list(Run& run, std::vector<Value> items, ListKind kind) {
  run.step(1 + items.size() / 8);
  const int depth = checked_depth(run, depth_of_all(items));
  Charge charge(run, sizeof(ListData) + items.size() * sizeof(Value));
  return List(
      std::make_shared<const ListData>(ListData{kind, std::move(items), depth, std::move(charge)}));
}

Value make_tuple(Run& run, std::vector<Value> items) {
  return make_list(run, std::move(items), ListKind::tuple);
}

Value make_generator(Run& run, std::vector<Value> items) {
  run.step(1 + items.size() / 8);
  const int depth = checked_depth(run, depth_of_all(items));
  Charge charge(run, sizeof(GeneratorData) + items.size() * sizeof(Value));
  return Generator(
      std::make_shared<GeneratorData>(GeneratorData{std::move(items), depth, std::move(charge)}));
}

const Value* NamespaceData::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

void NamespaceData::set(Run& run, std::string_view name, Value value) {
  run.step(1 + members.size() / 8);
  for (auto& [key, old] : members) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  charge.grow(sizeof(members[0]) + name.size());
  members.emplace_back(std::string(name), std::move(value));
}

bool is_true(const Value& value) {
  if (value.is<Undefined>() || value.is<None>()) return false;
  if (is_number(value)) return number_of(value) != 0;
  if (const auto* text = value.as<Text>()) return !text->empty();
  if (const auto* list = value.as<List>()) return !(*list)->items.empty();
  if (const auto* dict = value.as<Dict>()) return !(*dict)->entries.empty();
  return true;
}

std::string_view type_name(const Value& value) {
  if (const auto* list = value.as<List>()) {
    switch ((*list)->kind) {
      case ListKind::list:
        return "list";
      case ListKind::tuple:
        return "tuple";
      case ListKind::keys:
        return "dict_keys";
      case ListKind::values:
        return "dict_values";
      case ListKind::items:
        return "dict_items";
      case ListKind::range:
        return "range";
    }
  }
  if (value.is<Undefined>()) return "undefined";
  if (value.is<None>()) return "none";
  if (value.is<bool>()) return "bool";
  if (value.is<std::int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.is<Text>()) return "str";
  if (value.is<Dict>()) return "dict";
  if (value.is<Generator>()) return "generator";
  if (value.is<Namespace>()) return "namespace";
  return value.is<Loop>() ? "loop" : "function";
}

bool is_integer(const Value& value) { return value.is<std::int64_t>() || value.is<bool>(); }
bool is_number(const Value& value) { return is_integer(value) || value.is<double>(); }

std::int64_t integer_of(const Value& value) {
  const auto* truth = value.as<bool>();
  return truth != nullptr ? static_cast<std::int64_t>(*truth) : *value.as<std::int64_t>();
}

double number_of(const Value& value) {
  const auto* number = value.as<double>();
  return number != nullptr ? *number : static_cast<double>(integer_of(value));
}

std::vector<Value> items_of(Run& run, const Value& value) {
  if (const auto* list = value.as<List>()) {
    run.step((*list)->items.size() / 8);
    return (*list)->items;
  }
  if (const auto* text = value.as<Text>()) return characters_of(run, *text);
  if (const auto* dict = value.as<Dict>()) {
    std::vector<Value> keys;
    for (const auto& entry : (*dict)->entries) keys.push_back(entry.first);
    run.step(keys.size() / 8);
    return keys;
  }
  if (const auto* generator = value.as<Generator>()) {
    GeneratorData& data = **generator;
    std::vector<Value> rest(data.items.begin() + static_cast<std::ptrdiff_t>(data.next),
                            data.items.end());
    data.next = data.items.size();
    return rest;
  }
  if (value.is<Undefined>()) return {};
  run.refuse("{} cannot be iterated over: it is not a list, dict or string", type_name(value));
}

}  // namespace tessera::model::chat
