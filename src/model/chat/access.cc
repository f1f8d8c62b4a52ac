#include "model/chat/access.h"

#include <algorithm>
#include <charconv>

#include "model/chat/dict.h"
#include "model/chat/loop.h"
#include "model/chat/methods.h"
#include "model/checkpoint/quote.h"

namespace tessera::model::chat {
namespace {

void refuse_undefined(const Run& run, const Value& object) {
  if (const auto* undefined = object.as<Undefined>()) run.refuse("{}", *undefined->reason);
}

Value missing_member(const Value& object, std::string_view name) {
  return make_undefined(fmt::format("a {} has no member {}", type_name(object), in_quotes(name)));
}

std::optional<Value> list_item(const ListData& list, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(list.items.size());
  if (index < -size || index >= size) return std::nullopt;
  return list.items[static_cast<std::size_t>(index < 0 ? index + size : index)];
}

// The item that is stored under the key; empty if there is none.
std::optional<Value> stored_item(Run& run, const Value& object, const Value& key) {
  if (const auto* dict = object.as<Dict>()) {
    const Value* found = find_key(run, **dict, key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!is_integer(key)) return std::nullopt;
  if (const auto* text = object.as<Text>()) {
    const std::optional<Text> character = character_at(run, *text, integer_of(key));
    return character ? std::optional<Value>(*character) : std::nullopt;
  }
  const auto* list = object.as<List>();
  const bool has_places =
      list != nullptr && ((*list)->kind <= ListKind::tuple || (*list)->kind == ListKind::range);
  return has_places ? list_item(**list, integer_of(key)) : std::nullopt;
}

// Methods, and the members of namespaces and loops.
std::optional<Value> own_member(Run& run, const Value& object, std::string_view name) {
  if (name.starts_with("__")) run.refuse("a template may not use '{}'", name);
  if (const auto* space = object.as<Namespace>()) {
    const Value* found = (*space)->find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (const auto* loop = object.as<Loop>()) return (*loop)->member(run, name);
  return method_of(run, object, name);
}

}  // namespace

Value member_of(Run& run, const Value& object, std::string_view name) {
  refuse_undefined(run, object);
  if (auto found = own_member(run, object, name)) return *std::move(found);
  if (const auto* dict = object.as<Dict>()) {
    if (const Value* value = (*dict)->find(name)) return *value;
  }
  return missing_member(object, name);
}

Value item_of(Run& run, const Value& object, const Value& key) {
  refuse_undefined(run, object);
  if (auto found = stored_item(run, object, key)) return *std::move(found);
  if (const auto* name = key.as<Text>()) {
    if (auto found = own_member(run, object, name->view())) return *std::move(found);
    return missing_member(object, name->view());
  }
  if (is_integer(key)) {
    return make_undefined(fmt::format("a {} has no item {}", type_name(object), integer_of(key)));
  }
  return make_undefined(
      fmt::format("a {} cannot be indexed by a {}", type_name(object), type_name(key)));
}

Value slice_of(Run& run, const Value& object, const SliceBounds& bounds) {
  refuse_undefined(run, object);
  if (const auto* text = object.as<Text>()) return slice_text(run, *text, bounds);
  const auto* list = object.as<List>();
  if (list == nullptr || ((*list)->kind > ListKind::tuple && (*list)->kind != ListKind::range)) {
    run.refuse("a {} has no slices", type_name(object));
  }
  std::vector<Value> items;
  for (const std::size_t place : slice_places(run, bounds, (*list)->items.size())) {
    items.push_back((*list)->items[place]);
  }
  return make_list(run, std::move(items), (*list)->kind);
}

Value at_path(Run& run, const Value& object, const Value& path) {
  const auto* text = path.as<Text>();
  if (text == nullptr) return item_of(run, object, path);
  Value value = object;
  std::string_view rest = text->view();
  for (;;) {
    const std::size_t dot = rest.find('.');
    const std::string_view step = rest.substr(0, dot);
    std::int64_t index = 0;
    const bool is_place = !step.empty() && std::all_of(step.begin(), step.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    if (is_place) std::from_chars(step.data(), step.data() + step.size(), index);
    value = item_of(run, value, is_place ? Value(index) : Value(own_text(run, step)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace tessera::model::chat
