#include "reference/embedding.h"

namespace tessera::reference {

Array embedding(const Array& ids, const Array& table) {
  std::vector<std::int64_t> shape = ids.shape;
  shape.push_back(table.size(1));
  Array out(shape);
  std::size_t at = 0;
  for (double id : ids.data) {
    for (std::int64_t i = 0; i < table.size(1); ++i) {
      out.data[at++] = table.at(static_cast<std::int64_t>(id), i);
    }
  }
  return out;
}

}  // namespace tessera::reference
