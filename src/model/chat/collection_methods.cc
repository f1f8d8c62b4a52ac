#include "model/chat/arguments.h"
#include "model/chat/compare.h"
#include "model/chat/dict.h"
#include "model/chat/methods.h"

namespace tessera::model::chat {
namespace {

const DictData& dict_of(const Value& object) { return **object.as<Dict>(); }

Value get_method(Run& run, const Value& object, const CallArguments& arguments) {
  if (!arguments.named.empty()) run.refuse("get takes no named arguments");
  const auto [key, otherwise] = placed<2>(run, arguments, "get", {"key", "default"});
  if (key == nullptr) run.refuse("get needs a key");
  check_key(run, *key);
  if (const Value* found = find_key(run, dict_of(object), *key)) return *found;
  return otherwise == nullptr ? Value(None{}) : *otherwise;
}

Value items_method(Run& run, const Value& object, const CallArguments& arguments) {
  placed<0>(run, arguments, "items", {});
  std::vector<Value> pairs;
  for (const auto& entry : dict_of(object).entries) pairs.push_back(pair_of(run, entry));
  return make_list(run, std::move(pairs), ListKind::items);
}

Value keys_method(Run& run, const Value& object, const CallArguments& arguments) {
  placed<0>(run, arguments, "keys", {});
  return make_list(run, items_of(run, object), ListKind::keys);
}

Value values_method(Run& run, const Value& object, const CallArguments& arguments) {
  placed<0>(run, arguments, "values", {});
  std::vector<Value> values;
  for (const auto& entry : dict_of(object).entries) values.push_back(entry.second);
  return make_list(run, std::move(values), ListKind::values);
}

Value copy_method(Run& run, const Value& object, const CallArguments& arguments) {
  placed<0>(run, arguments, "copy", {});
  return object;  // it never changes
}

Value list_index_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [wanted] = placed<1>(run, arguments, "index", {"value"});
  if (wanted == nullptr) run.refuse("index needs a value");
  const std::vector<Value>& items = (*object.as<List>())->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(run, items[i], *wanted)) return static_cast<std::int64_t>(i);
  }
  run.refuse("index does not find the value");
}

Value list_count_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [wanted] = placed<1>(run, arguments, "count", {"value"});
  if (wanted == nullptr) run.refuse("count needs a value");
  std::int64_t count = 0;
  for (const Value& item : (*object.as<List>())->items) count += equal(run, item, *wanted) ? 1 : 0;
  return count;
}

}  // namespace

Method dict_method(std::string_view name) {
  if (name == "get") return get_method;
  if (name == "items") return items_method;
  if (name == "keys") return keys_method;
  if (name == "values") return values_method;
  return name == "copy" ? copy_method : nullptr;
}

Method list_method(std::string_view name) {
  if (name == "index") return list_index_method;
  if (name == "count") return list_count_method;
  return name == "copy" ? copy_method : nullptr;
}

}  // namespace tessera::model::chat
