// Members and items of values: a.b, a['b'], a[0], a[1:].
#pragma once

#include <string_view>

#include "model/chat/text_parts.h"
#include "model/chat/value.h"

namespace tessera::model::chat {

// A method of this name, else the member that is stored under it.
Value member_of(Run& run, const Value& object, std::string_view name);
// The item that is stored under the key, else a method.
Value item_of(Run& run, const Value& object, const Value& key);
Value slice_of(Run& run, const Value& object, const SliceBounds& bounds);
// Follows a path such as "function.name", item by item.
Value at_path(Run& run, const Value& object, const Value& path);

}  // namespace tessera::model::chat
