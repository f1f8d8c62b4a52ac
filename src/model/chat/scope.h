// The names that a part of a template sees.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/value.h"

namespace tessera::model::chat {

struct Scope {
  const Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> names{};  // views of names in the template
  mutable bool captured = false;  // a macro was made here or in an inner scope

  // Null if there is none, here or in an outer scope.
  const Value* find(Run& run, std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      run.step(scope->names.size() / 8);
      for (const auto& [each, value] : scope->names) {
        if (each == name) return &value;
      }
    }
    return nullptr;
  }

  // In this scope.
  void set(Run& run, std::string_view name, Value value) {
    run.step(names.size() / 8);
    for (auto& [each, old] : names) {
      if (each != name) continue;
      old = std::move(value);
      return;
    }
    names.emplace_back(name, std::move(value));
  }

  void capture() const {
    for (const Scope* scope = this; scope != nullptr && !scope->captured; scope = scope->parent) {
      scope->captured = true;
    }
  }
};

}  // namespace tessera::model::chat
