// Small models of random weights, and requests to an Engine, for tests of several processes.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::test {

// Two heads and a key/value head for each of `size` ranks; the inner features differ from rank to
// rank.
ModelConfig small_config(bool neox, int size);
// What an Engine answers to a few requests.
std::vector<std::vector<std::int32_t>> answers_of(Context& ctx, const Model& model);

}  // namespace tessera::test
