// The options of load_model() as Python gives them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/model.h"

namespace tessera::python {

LoadOptions load_options(const std::optional<std::string>& dtype, const std::string& weights,
                         const std::vector<std::string>& keep_dense, bool mmap);

}  // namespace tessera::python
