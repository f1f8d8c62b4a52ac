// The methods of strings, lists and dicts.
#pragma once

#include <optional>
#include <string_view>

#include "model/chat/value.h"

namespace tessera::model::chat {

using Method = Value (*)(Run& run, const Value& object, const CallArguments& arguments);

// The method with its object; empty if the object's type has none of this name. Refuses names that
// Python has but templates may not use: those that change a list or dict, and a few rare ones.
std::optional<Value> method_of(Run& run, const Value& object, std::string_view name);

// One table each; null if there is none.
Method string_method(std::string_view name);
Method list_method(std::string_view name);
Method dict_method(std::string_view name);

}  // namespace tessera::model::chat
