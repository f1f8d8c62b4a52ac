// ==, <, in and `is sameas`, as Python has them.
#pragma once

#include "model/chat/value.h"

namespace tessera::model::chat {

bool equal(Run& run, const Value& a, const Value& b);
// Refuses values that have no order among them, such as a number and a string. `sign` is that of
// the operation, for the refusal.
bool less(Run& run, const Value& a, const Value& b, std::string_view sign);
bool contains(Run& run, const Value& container, const Value& item);
bool is_same(const Value& a, const Value& b);

}  // namespace tessera::model::chat
