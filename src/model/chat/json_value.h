// Values from JSON that somebody else wrote.
#pragma once

#include <string_view>

#include "model/chat/value.h"

namespace tessera::model::chat {

// All strings in it are foreign, the keys of objects too. Members keep their order; of two with the
// same key, the last counts. Throws one sentence that begins with `what`.
Value value_of_json(Run& run, std::string_view json, std::string_view what);

}  // namespace tessera::model::chat
