// Names of dtypes, devices and options, as Python writes them, and back.
#pragma once

#include <nanobind/ndarray.h>

#include <string>
#include <string_view>

#include "tessera/device.h"
#include "tessera/dtype.h"
#include "tessera/error.h"
#include "tessera/linear.h"
#include "tessera/rotary.h"

namespace tessera::python {

nanobind::dlpack::dtype dlpack_dtype(DType dtype);
// `where` begins the refusal: "attention: q".
DType dtype_from_dlpack(nanobind::dlpack::dtype dtype, const std::string& where);
const char* numpy_name(DType dtype);  // null: numpy has no such type
DType parse_dtype(std::string_view text);
// The same for keys and values, which may be "fp8" or "int8" as well.
DType parse_cache_dtype(std::string_view text);
Device parse_device(std::string_view text);  // cpu, cuda, cuda:1, auto
Activation parse_activation(std::string_view text);
RopeStyle parse_rope_style(std::string_view text);
std::string_view name(RopeStyle style);
const char* name(ErrorCode code);

}  // namespace tessera::python
