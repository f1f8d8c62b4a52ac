// The tests: what may follow `is`.
#pragma once

#include <string_view>

#include "model/chat/value.h"

namespace tessera::model::chat {

using TestFunction = bool (*)(Run& run, const Value& value, const CallArguments& arguments);
// Null if there is none of this name.
TestFunction find_test(std::string_view name);
// Refuses a name that is unknown.
bool passes_test(Run& run, std::string_view name, const Value& value,
                 const CallArguments& arguments);

}  // namespace tessera::model::chat
