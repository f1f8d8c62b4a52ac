#include "reference/kv_append.h"

namespace tessera::reference {

Array kv_append(const Array& x, const Array& slots, const Array& pages) {
  Array out = pages;
  for (std::int64_t token = 0; token < x.size(0); ++token) {
    const auto slot = static_cast<std::int64_t>(slots.at(token));
    for (std::int64_t h = 0; h < x.size(1); ++h) {
      for (std::int64_t d = 0; d < x.size(2); ++d) {
        out.at(slot / pages.size(1), slot % pages.size(1), h, d) = x.at(token, h, d);
      }
    }
  }
  return out;
}

}  // namespace tessera::reference
