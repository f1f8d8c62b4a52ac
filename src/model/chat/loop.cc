#include "model/chat/loop.h"

#include <utility>

namespace tessera::model::chat {
namespace {

// loop.cycle('odd', 'even')
class Cycle : public Callable {
 public:
  explicit Cycle(std::int64_t index) : index_(index) {}
  Value call(Run& run, CallArguments& arguments) const override {
    if (arguments.positional.empty() || !arguments.named.empty()) {
      run.refuse("loop.cycle needs the values to cycle through");
    }
    return arguments.positional[static_cast<std::size_t>(index_) % arguments.positional.size()];
  }

 private:
  std::int64_t index_;
};

}  // namespace

LoopState::LoopState(Run& run, std::vector<Value> items, std::function<bool(const Value&)> test)
    : items_(std::move(items)),
      test_(std::move(test)),
      charge_(run, sizeof(LoopState) + items_.size() * sizeof(Value)) {}

bool LoopState::look_ahead(Run& run) {
  if (next_ahead_ < ahead_.size()) return true;
  ahead_.clear();
  next_ahead_ = 0;
  while (next_ < items_.size()) {
    run.step();
    const Value& item = items_[next_++];
    if (test_ && !test_(item)) continue;
    ahead_.push_back(item);
    return true;
  }
  return false;
}

bool LoopState::advance(Run& run) {
  if (!look_ahead(run)) return false;
  if (index_ >= 0) previous_ = std::move(current_);
  current_ = std::move(ahead_[next_ahead_++]);
  ++index_;
  return true;
}

void LoopState::finish() {
  items_.clear();
  next_ = 0;
  test_ = nullptr;
}

std::int64_t LoopState::length(Run& run) {
  if (!test_) {
    return index_ + 1 +
           static_cast<std::int64_t>(ahead_.size() - next_ahead_ + items_.size() - next_);
  }
  std::vector<Value> all(ahead_.begin() + static_cast<std::ptrdiff_t>(next_ahead_), ahead_.end());
  while (next_ < items_.size()) {
    run.step();
    const Value& item = items_[next_++];
    if (test_(item)) all.push_back(item);
  }
  charge_.grow(all.size() * sizeof(Value));
  ahead_ = std::move(all);
  next_ahead_ = 0;
  return index_ + 1 + static_cast<std::int64_t>(ahead_.size());
}

std::optional<Value> LoopState::member(Run& run, std::string_view name) {
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(!look_ahead(run));
  if (name == "length") return Value(length(run));
  if (name == "revindex") return Value(length(run) - index_);
  if (name == "revindex0") return Value(length(run) - index_ - 1);
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") {
    return previous_ ? *previous_ : make_undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return look_ahead(run) ? ahead_[next_ahead_] : make_undefined("there is no next item");
  }
  if (name == "cycle") return Value(Function(std::make_shared<const Cycle>(index_)));
  if (name == "changed") run.refuse("loop.changed is not supported");
  return std::nullopt;
}

}  // namespace tessera::model::chat
