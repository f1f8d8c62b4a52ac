// ==, <, in and `is sameas`, as in Python.
#pragma once

#include "model/chat/value.h"

namespace tessera::model::chat {

bool equal(Run& run, const Value& a, const Value& b);
// Refuses values that have no order, such as a number and a string. `sign` is the operator's, for
// the message.
bool less(Run& run, const Value& a, const Value& b, std::string_view sign);
bool contains(Run& run, const Value& container, const Value& item);
bool is_same(const Value& a, const Value& b);

}  // namespace tessera::model::chat
