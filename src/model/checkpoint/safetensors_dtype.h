// The element types a safetensors file can name.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/dtype.h"

namespace tessera::model {

struct SafetensorsDType {
  std::string_view name;
  int bits;                    // of one element
  std::optional<DType> dtype;  // what Tessera reads it as; none: it can only be copied
};

// Null for a name that the format does not have.
const SafetensorsDType* find_safetensors_dtype(std::string_view name);

// The name of a Tessera dtype in files: "F8_E4M3".
std::string_view spelled(DType dtype);

// Where an element may start in memory: its size, and one byte for those below a byte.
constexpr int alignment_of(const SafetensorsDType& dtype) {
  return dtype.bits % 8 == 0 ? dtype.bits / 8 : 1;
}

}  // namespace tessera::model
