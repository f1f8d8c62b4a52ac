#include "model/chat/compare.h"

#include <algorithm>

#include "model/chat/dict.h"

namespace tessera::model::chat {
namespace {

bool equal_numbers(const Value& a, const Value& b) {
  if (is_integer(a) && is_integer(b)) return integer_of(a) == integer_of(b);
  return number_of(a) == number_of(b);
}

// Views and ranges equal only themselves; templates do not compare them.
bool equal_lists(Run& run, const ListData& a, const ListData& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(run, a.items[i], b.items[i])) return false;
  }
  return true;
}

bool equal_dicts(Run& run, const DictData& a, const DictData& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find_key(run, b, key);
    if (other == nullptr || !equal(run, value, *other)) return false;
  }
  return true;
}

bool less_lists(Run& run, const ListData& a, const ListData& b, std::string_view sign) {
  const std::size_t common = std::min(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (!equal(run, a.items[i], b.items[i])) return less(run, a.items[i], b.items[i], sign);
  }
  return a.items.size() < b.items.size();
}

}  // namespace

bool equal(Run& run, const Value& a, const Value& b) {
  run.step();
  if (is_number(a) && is_number(b)) return equal_numbers(a, b);
  if (a.data.index() != b.data.index()) return false;
  if (const auto* text = a.as<Text>()) {
    run.work_on(std::min(text->size(), b.as<Text>()->size()));
    return text->view() == b.as<Text>()->view();
  }
  if (const auto* list = a.as<List>()) return equal_lists(run, **list, **b.as<List>());
  if (const auto* dict = a.as<Dict>()) return equal_dicts(run, **dict, **b.as<Dict>());
  return a.is<Undefined>() || is_same(a, b);
}

bool less(Run& run, const Value& a, const Value& b, std::string_view sign) {
  run.step();
  if (is_integer(a) && is_integer(b)) return integer_of(a) < integer_of(b);
  if (is_number(a) && is_number(b)) return number_of(a) < number_of(b);
  // The order of UTF-8 bytes is that of the characters.
  const auto *text = a.as<Text>(), *other_text = b.as<Text>();
  if (text != nullptr && other_text != nullptr) {
    run.work_on(std::min(text->size(), other_text->size()));
    return text->view() < other_text->view();
  }
  const auto *list = a.as<List>(), *other = b.as<List>();
  if (list != nullptr && other != nullptr && (*list)->kind == (*other)->kind &&
      (*list)->kind <= ListKind::tuple) {
    return less_lists(run, **list, **other, sign);
  }
  for (const Value* value : {&a, &b}) {
    if (const auto* undefined = value->as<Undefined>()) run.refuse("{}", *undefined->reason);
  }
  run.refuse("'{}' cannot compare {} with {}", sign, type_name(a), type_name(b));
}

bool contains(Run& run, const Value& container, const Value& item) {
  if (const auto* text = container.as<Text>()) {
    const auto* wanted = item.as<Text>();
    if (wanted == nullptr) {
      if (const auto* undefined = item.as<Undefined>()) run.refuse("{}", *undefined->reason);
      run.refuse("'in' looks for a string in a string, not for {}", type_name(item));
    }
    run.work_on(text->size());
    return find_in(text->view(), wanted->view()) != std::string_view::npos;
  }
  if (const auto* dict = container.as<Dict>()) {
    check_key(run, item);
    return find_key(run, **dict, item) != nullptr;
  }
  if (const auto* list = container.as<List>()) {
    return std::any_of((*list)->items.begin(), (*list)->items.end(),
                       [&](const Value& each) { return equal(run, each, item); });
  }
  // A generator goes only as far as it must.
  if (const auto* generator = container.as<Generator>()) {
    GeneratorData& data = **generator;
    while (data.next < data.items.size()) {
      if (equal(run, data.items[data.next++], item)) return true;
    }
    return false;
  }
  if (container.is<Undefined>()) return false;
  run.refuse("'in' cannot look into {}", type_name(container));
}

bool is_same(const Value& a, const Value& b) {
  if (a.data.index() != b.data.index()) return false;
  if (const auto* truth = a.as<bool>()) return *truth == *b.as<bool>();
  if (const auto* number = a.as<std::int64_t>()) return *number == *b.as<std::int64_t>();
  if (const auto* list = a.as<List>()) return *list == *b.as<List>();
  if (const auto* dict = a.as<Dict>()) return *dict == *b.as<Dict>();
  if (const auto* generator = a.as<Generator>()) return *generator == *b.as<Generator>();
  if (const auto* space = a.as<Namespace>()) return *space == *b.as<Namespace>();
  if (const auto* function = a.as<Function>()) return *function == *b.as<Function>();
  if (const auto* loop = a.as<Loop>()) return *loop == *b.as<Loop>();
  if (const auto* text = a.as<Text>()) return text->view() == b.as<Text>()->view();
  return a.is<None>();
}

}  // namespace tessera::model::chat
