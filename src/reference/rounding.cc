#include "reference/rounding.h"

#include "core/half.h"

namespace tessera::reference {

double rounded(double x, DType dtype) {
  const float narrow = static_cast<float>(x);
  switch (dtype) {
    case DType::f16:
      return to_float(to_f16(narrow));
    case DType::bf16:
      return to_float(to_bf16(narrow));
    default:
      return narrow;
  }
}

Array rounded(Array x, DType dtype) {
  for (double& value : x.data) value = rounded(value, dtype);
  return x;
}

}  // namespace tessera::reference
