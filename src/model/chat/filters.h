// The filters: what may follow |.
#pragma once

#include <string_view>

#include "model/chat/value.h"

namespace tessera::model::chat {

using FilterFunction = Value (*)(Run& run, const Value& value, const CallArguments& arguments);
// Null if there is none of this name.
FilterFunction find_filter(std::string_view name);
// Refuses a name that is unknown.
Value apply_filter(Run& run, std::string_view name, const Value& value,
                   const CallArguments& arguments);

// One table each; null if there is none of this name.
FilterFunction text_filter(std::string_view name);
FilterFunction number_filter(std::string_view name);
FilterFunction list_filter(std::string_view name);

}  // namespace tessera::model::chat
