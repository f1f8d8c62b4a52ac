// Weight as an argument of fmt::format, written as to_string() writes it.
#pragma once

#include "core/format.h"
#include "tessera/weight.h"

template <>
struct fmt::formatter<tessera::Weight> : tessera::ToStringFormatter<tessera::Weight> {};
