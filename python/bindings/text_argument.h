// A str as UTF-8.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace tessera::python {

// Lives as long as `text`. A lone surrogate, which is no character, is a UnicodeEncodeError.
std::string_view utf8_of(const nanobind::str& text);

}  // namespace tessera::python
