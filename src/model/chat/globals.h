// The functions that every template can call: range, dict, namespace, raise_exception and
// strftime_now.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/chat/scope.h"

namespace tessera::model::chat {

// Objects that live as long as the rendering, whatever refers to them.
struct Owned {
  std::vector<std::unique_ptr<NamespaceData>> namespaces;
};

// Both must outlive the scope.
void add_globals(Run& run, Scope& scope, Owned& owned, std::int64_t unix_time);

}  // namespace tessera::model::chat
