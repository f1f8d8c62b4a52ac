// Small models of random weights, and requests to an Engine, for tests of several processes.
#pragma once

#include <memory>

#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::test {

// Two heads and a key/value head for each of `size` ranks; the inner features differ from rank to
// rank.
ModelConfig small_config(bool neox, int size);
// Rank 0 leads the others through a few requests to an Engine, so many times, each with a pool of
// its own, and expects the answers of the whole model. `part` is this rank's part of it.
void expect_answers_of_the_whole(Context& ctx, const ModelConfig& config,
                                 std::unique_ptr<Model> part, int times);

}  // namespace tessera::test
