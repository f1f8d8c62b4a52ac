// The variable `loop` in the body of a for.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "model/chat/value.h"

namespace tessera::model::chat {

// Goes through items, and looks ahead only as far as it must: the test of a filtered loop may
// depend on what the body has done.
struct LoopState {
 public:
  // An empty test lets every item pass.
  LoopState(Run& run, std::vector<Value> items, std::function<bool(const Value&)> test);

  // Moves on to the next item. False if there is none.
  bool advance(Run& run);
  const Value& current() const { return current_; }
  // Ends the loop; its test cannot be called afterwards.
  void finish();

  // loop.index and the like; empty if there is none of this name.
  std::optional<Value> member(Run& run, std::string_view name);

 private:
  bool look_ahead(Run& run);  // false: the current item is the last
  std::int64_t length(Run& run);

  std::vector<Value> items_;
  std::size_t next_ = 0;
  std::function<bool(const Value&)> test_;
  std::vector<Value> ahead_;  // passed the test already
  std::size_t next_ahead_ = 0;
  std::optional<Value> previous_;
  Value current_;
  std::int64_t index_ = -1;
  Charge charge_;
};

}  // namespace tessera::model::chat
