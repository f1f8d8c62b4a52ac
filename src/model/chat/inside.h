// An inner scope.
#pragma once

#include <utility>

#include "model/chat/evaluator.h"

namespace tessera::model::chat {

class Evaluator::Inside {
 public:
  Inside(Evaluator& evaluator, const Scope* parent)
      : evaluator_(evaluator),
        scope_(std::make_unique<Scope>(Scope{.parent = parent})),
        outside_(std::exchange(evaluator.scope_, scope_.get())) {
    evaluator_.kept_charge_.grow(sizeof(Scope));
  }
  explicit Inside(Evaluator& evaluator) : Inside(evaluator, evaluator.scope_) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    evaluator_.scope_ = outside_;
    if (scope_->captured) {
      evaluator_.kept_.push_back(std::move(scope_));
    } else {
      evaluator_.kept_charge_.shrink(sizeof(Scope));
    }
  }

 private:
  Evaluator& evaluator_;
  std::unique_ptr<Scope> scope_;
  Scope* outside_;
};

}  // namespace tessera::model::chat
