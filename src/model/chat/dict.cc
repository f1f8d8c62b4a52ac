#include "model/chat/dict.h"

#include <algorithm>

#include "model/chat/compare.h"

namespace tessera::model::chat {
namespace {

constexpr std::size_t kEntryOverhead = 96;  // bytes, with its place in the index

constexpr std::size_t kNoEntry = static_cast<std::size_t>(-1);

std::size_t index_of(Run& run, const DictData& dict, const Value& key) {
  if (const auto* text = key.as<Text>()) {
    const auto found = dict.by_text.find(text->view());
    return found == dict.by_text.end() ? kNoEntry : found->second;
  }
  if (dict.by_text.size() == dict.entries.size()) return kNoEntry;
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    run.step();
    if (equal(run, dict.entries[i].first, key)) return i;
  }
  return kNoEntry;
}

}  // namespace

const Value* DictData::find(std::string_view key) const {
  const auto found = by_text.find(key);
  return found == by_text.end() ? nullptr : &entries[found->second].second;
}

DictBuilder::DictBuilder(Run& run) : run_(run), data_(std::make_shared<DictData>()) {
  data_->charge = Charge(run, sizeof(DictData));
}

void DictBuilder::set(const Value& key, Value value) {
  run_.step();
  check_key(run_, key);
  const int depth = std::max(depth_of(key), depth_of(value));
  data_->depth = std::max(data_->depth, checked_depth(run_, depth));
  if (const std::size_t old = index_of(run_, *data_, key); old != kNoEntry) {
    data_->entries[old].second = std::move(value);
    return;
  }
  data_->charge.grow(kEntryOverhead);
  data_->entries.emplace_back(key, std::move(value));
  // The view points to the shared bytes, which do not move.
  if (const auto* text = data_->entries.back().first.as<Text>()) {
    data_->by_text.emplace(text->view(), data_->entries.size() - 1);
  }
}

bool DictBuilder::has(const Value& key) const { return find_key(run_, *data_, key) != nullptr; }

Value DictBuilder::take() { return Dict(std::move(data_)); }

void check_key(const Run& run, const Value& key) {
  const auto* list = key.as<List>();
  if (key.is<Dict>() || (list != nullptr && (*list)->kind == ListKind::list)) {
    run.refuse("a {} cannot be a key of a dict", type_name(key));
  }
  if (list == nullptr || (*list)->kind != ListKind::tuple) return;
  for (const Value& item : (*list)->items) check_key(run, item);
}

const Value* find_key(Run& run, const DictData& dict, const Value& key) {
  const std::size_t index = index_of(run, dict, key);
  return index == kNoEntry ? nullptr : &dict.entries[index].second;
}

Value pair_of(Run& run, const std::pair<Value, Value>& entry) {
  return make_tuple(run, {entry.first, entry.second});
}

}  // namespace tessera::model::chat
