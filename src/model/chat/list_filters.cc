#include <algorithm>
#include <array>
#include <span>

#include "model/chat/access.h"
#include "model/chat/arguments.h"
#include "model/chat/compare.h"
#include "model/chat/dict.h"
#include "model/chat/filters.h"
#include "model/chat/operators.h"
#include "model/chat/tests.h"
#include "model/chat/text_case.h"
#include "model/chat/text_parts.h"

namespace tessera::model::chat {
namespace {

Value default_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [otherwise, for_false] =
      placed<2>(run, arguments, "default", {"default_value", "boolean"});
  const bool missing =
      value.is<Undefined>() || (truth_argument(for_false, false) && !is_true(value));
  if (!missing) return value;
  return otherwise == nullptr ? Value(Text()) : *otherwise;
}

Value length_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "length", {});
  std::size_t length = 0;
  if (const auto* text = value.as<Text>()) {
    run.work_on(text->size());
    length = text->characters();
  } else if (const auto* list = value.as<List>()) {
    length = (*list)->items.size();
  } else if (const auto* dict = value.as<Dict>()) {
    length = (*dict)->entries.size();
  } else if (!value.is<Undefined>()) {
    run.refuse("a {} has no length{}", type_name(value),
               value.is<Generator>() ? "; write |list before it" : "");
  }
  return static_cast<std::int64_t>(length);
}

Value list_of_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "list", {});
  return make_list(run, items_of(run, value));
}

Value first_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "first", {});
  if (const auto* generator = value.as<Generator>()) {
    GeneratorData& data = **generator;
    if (data.next < data.items.size()) return data.items[data.next++];
  } else if (const auto* text = value.as<Text>()) {
    if (const auto character = character_at(run, *text, 0)) return *character;
  } else {
    const std::vector<Value> items = items_of(run, value);
    if (!items.empty()) return items.front();
  }
  return make_undefined("there is no first item");
}

Value last_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "last", {});
  if (value.is<Generator>()) run.refuse("a generator has no last item; write |list before it");
  if (const auto* text = value.as<Text>()) {
    if (const auto character = character_at(run, *text, -1)) return *character;
  } else if (!value.is<Undefined>()) {
    const std::vector<Value> items = items_of(run, value);
    if (!items.empty()) return items.back();
  }
  return make_undefined("there is no last item");
}

Value reverse_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "reverse", {});
  if (const auto* text = value.as<Text>())
    return slice_text(run, *text, {.begin{}, .end{}, .step = -1});
  std::vector<Value> items = items_of(run, value);
  std::reverse(items.begin(), items.end());
  return value.is<Generator>() ? make_list(run, std::move(items))
                               : make_generator(run, std::move(items));
}

Value items_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "items", {});
  std::vector<Value> pairs;
  if (const auto* dict = value.as<Dict>()) {
    for (const auto& entry : (*dict)->entries) pairs.push_back(pair_of(run, entry));
  } else if (!value.is<Undefined>()) {
    run.refuse("items needs a dict, not {}", type_name(value));
  }
  return make_generator(run, std::move(pairs));
}

// Strings become lower case, so that the order ignores case.
Value sort_key(Run& run, const Value& value, const Value* path, bool case_sensitive) {
  const Value key = path == nullptr || path->is<None>() ? value : at_path(run, value, *path);
  const auto* text = key.as<Text>();
  return text != nullptr && !case_sensitive ? Value(lower(run, *text)) : key;
}

using Keyed = std::pair<Value, Value>;  // the key that decides the order, and the item
std::vector<Keyed> keyed_items(Run& run, const Value& value, const Value* path,
                               bool case_sensitive) {
  std::vector<Keyed> all;
  for (const Value& item : items_of(run, value)) {
    all.emplace_back(sort_key(run, item, path, case_sensitive), item);
  }
  return all;
}

std::vector<Value> sorted_items(Run& run, std::vector<Keyed> all, bool reverse) {
  // Equal items need no order.
  const auto goes_before = [&](const Value& a, const Value& b) {
    return !equal(run, a, b) && less(run, a, b, "<");
  };
  std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? goes_before(b.first, a.first) : goes_before(a.first, b.first);
  });
  std::vector<Value> items;
  items.reserve(all.size());
  for (Keyed& each : all) items.push_back(std::move(each.second));
  return items;
}

Value sort_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [reverse, case_sensitive, path] =
      placed<3>(run, arguments, "sort", {"reverse", "case_sensitive", "attribute"});
  return make_list(
      run, sorted_items(run, keyed_items(run, value, path, truth_argument(case_sensitive, false)),
                        truth_argument(reverse, false)));
}

Value dictsort_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [case_sensitive, by, reverse] =
      placed<3>(run, arguments, "dictsort", {"case_sensitive", "by", "reverse"});
  const auto* dict = value.as<Dict>();
  if (dict == nullptr) run.refuse("dictsort needs a dict, not {}", type_name(value));
  const std::string_view what = by == nullptr ? "key" : text_argument(run, by, "dictsort").view();
  if (what != "key" && what != "value") run.refuse("dictsort sorts by key or by value");
  std::vector<Keyed> all;
  for (const auto& entry : (*dict)->entries) {
    all.emplace_back(sort_key(run, what == "key" ? entry.first : entry.second, nullptr,
                              truth_argument(case_sensitive, false)),
                     pair_of(run, entry));
  }
  return make_list(run, sorted_items(run, std::move(all), truth_argument(reverse, false)));
}

Value unique_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [case_sensitive, path] =
      placed<2>(run, arguments, "unique", {"case_sensitive", "attribute"});
  DictBuilder seen(run);
  for (const auto& [key, item] :
       keyed_items(run, value, path, truth_argument(case_sensitive, false))) {
    check_key(run, key);
    if (!seen.has(key)) seen.set(key, item);
  }
  const Value dict = seen.take();
  std::vector<Value> items;
  for (const auto& entry : (*dict.as<Dict>())->entries) items.push_back(entry.second);
  return make_generator(run, std::move(items));
}

template <bool kLargest>
Value extreme_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [case_sensitive, path] =
      placed<2>(run, arguments, kLargest ? "max" : "min", {"case_sensitive", "attribute"});
  const std::vector<Keyed> all =
      keyed_items(run, value, path, truth_argument(case_sensitive, false));
  if (all.empty()) return make_undefined("there is no item to choose from");
  const Keyed* best = &all[0];
  for (const Keyed& each : std::span(all).subspan(1)) {
    const bool better = kLargest ? less(run, best->first, each.first, ">")
                                 : less(run, each.first, best->first, "<");
    if (better) best = &each;
  }
  return best->second;
}

Value sum_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [path, start] = placed<2>(run, arguments, "sum", {"attribute", "start"});
  Value total = start == nullptr ? Value(std::int64_t{0}) : *start;
  for (const Value& item : items_of(run, value)) {
    const bool whole = path == nullptr || path->is<None>();
    total = binary_value(run, BinaryOp::add, total, whole ? item : at_path(run, item, *path));
  }
  return total;
}

Value batch_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [count, fill] = placed<2>(run, arguments, "batch", {"linecount", "fill_with"});
  const std::int64_t size = integer_argument(run, count, 0, "batch");
  if (size < 1) run.refuse("batch needs a number of at least 1");
  std::vector<Value> batches, now;
  for (Value& item : items_of(run, value)) {
    now.push_back(std::move(item));
    if (static_cast<std::int64_t>(now.size()) < size) continue;
    batches.push_back(make_list(run, std::exchange(now, {})));
  }
  if (!now.empty()) {
    const bool fills = fill != nullptr && !fill->is<None>();
    Charge charge(run, 0);
    while (fills && static_cast<std::int64_t>(now.size()) < size) {
      charge.grow(sizeof(Value));
      now.push_back(*fill);
    }
    batches.push_back(make_list(run, std::move(now)));
  }
  return make_generator(run, std::move(batches));
}

// The arguments from `from` on, without the named ones that are used already.
CallArguments rest_of(const CallArguments& arguments, std::size_t from) {
  CallArguments rest{{}, arguments.named};
  for (std::size_t i = from; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  return rest;
}

// For map, select and the like, none and 0 count as an empty list.
std::vector<Value> items_if_any(Run& run, const Value& value) {
  return is_true(value) ? items_of(run, value) : std::vector<Value>();
}

Value map_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const std::vector<Value> items = items_if_any(run, value);
  std::vector<Value> results;
  if (arguments.positional.empty()) {
    const auto [path, otherwise] = placed<2>(run, arguments, "map", {"attribute", "default"});
    if (path == nullptr) run.refuse("map needs a filter or an attribute");
    for (const Value& item : items) {
      Value found = at_path(run, item, *path);
      const bool missing = found.is<Undefined>() && otherwise != nullptr && !otherwise->is<None>();
      if (missing) found = *otherwise;
      results.push_back(std::move(found));
    }
  } else {
    const Text name = text_argument(run, &arguments.positional[0], "map");
    const CallArguments rest = rest_of(arguments, 1);
    for (const Value& item : items) results.push_back(apply_filter(run, name.view(), item, rest));
  }
  return make_generator(run, std::move(results));
}

// select, reject, selectattr and rejectattr.
template <bool kWanted, bool kByMember>
Value select_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const std::size_t name_at = kByMember ? 1 : 0;
  if (kByMember && arguments.positional.empty()) run.refuse("the filter needs an attribute");
  const bool has_test = arguments.positional.size() > name_at;
  const Text name =
      has_test ? text_argument(run, &arguments.positional[name_at], "the filter") : Text();
  const CallArguments rest = rest_of(arguments, name_at + 1);
  std::vector<Value> chosen;
  for (const Value& item : items_if_any(run, value)) {
    const Value tested = kByMember ? at_path(run, item, arguments.positional[0]) : item;
    const bool passes = has_test ? passes_test(run, name.view(), tested, rest) : is_true(tested);
    if (passes == kWanted) chosen.push_back(item);
  }
  return make_generator(run, std::move(chosen));
}

struct NamedListFilter {
  std::string_view name;
  FilterFunction filter;
};
constexpr std::array<NamedListFilter, 21> kListFilters = {{
    {"default", default_filter},
    {"d", default_filter},
    {"length", length_filter},
    {"count", length_filter},
    {"list", list_of_filter},
    {"first", first_filter},
    {"last", last_filter},
    {"reverse", reverse_filter},
    {"items", items_filter},
    {"sort", sort_filter},
    {"dictsort", dictsort_filter},
    {"unique", unique_filter},
    {"min", extreme_filter<false>},
    {"max", extreme_filter<true>},
    {"sum", sum_filter},
    {"batch", batch_filter},
    {"map", map_filter},
    {"select", select_filter<true, false>},
    {"reject", select_filter<false, false>},
    {"selectattr", select_filter<true, true>},
    {"rejectattr", select_filter<false, true>},
}};

}  // namespace

FilterFunction list_filter(std::string_view name) {
  for (const NamedListFilter& each : kListFilters) {
    if (each.name == name) return each.filter;
  }
  return nullptr;
}

}  // namespace tessera::model::chat
