// Members and items of values: a.b, a['b'], a[0], a[1:].
#pragma once

#include <string_view>

#include "model/chat/text_parts.h"
#include "model/chat/value.h"

namespace tessera::model::chat {

// A method first, then what is stored under the name.
Value member_of(Run& run, const Value& object, std::string_view name);
// What is stored first, then a method.
Value item_of(Run& run, const Value& object, const Value& key);
Value slice_of(Run& run, const Value& object, const SliceBounds& bounds);
// By a path such as "function.name", item by item.
Value at_path(Run& run, const Value& object, const Value& path);

}  // namespace tessera::model::chat
