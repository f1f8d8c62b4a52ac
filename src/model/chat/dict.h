// Python's dict: keys in the order of insertion, found by value.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/chat/value.h"

namespace tessera::model::chat {

struct DictData {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string_view, std::size_t> by_text;  // the entries whose keys are strings
  int depth = 1;
  Charge charge;

  const Value* find(std::string_view key) const;
};

// A later value of the same key replaces the earlier one.
class DictBuilder {
 public:
  explicit DictBuilder(Run& run);
  void set(const Value& key, Value value);
  bool has(const Value& key) const;
  Value take();

 private:
  Run& run_;
  std::shared_ptr<DictData> data_;
};

// Refuses a list, a dict, and a tuple that contains one of these: they cannot be keys.
void check_key(const Run& run, const Value& key);
const Value* find_key(Run& run, const DictData& dict, const Value& key);
Value pair_of(Run& run, const std::pair<Value, Value>& entry);

}  // namespace tessera::model::chat
