// Small models of random weights, and what they must answer on several ranks as on one: for tests
// under mpirun (tests/parallel) and with threads as ranks (thread_ranks.h).
#pragma once

#include <memory>
#include <optional>

#include "parallel/control.h"
#include "tessera/communicator.h"
#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::test {

// Two heads and a key/value head for each of `size` ranks; the inner features differ from rank to
// rank.
ModelConfig small_config(bool neox, int size);
// Rank 0 leads the others through a few requests to an Engine, several times, each with a pool of
// its own, and expects the answers of the whole model. `part` is this rank's part of it.
void expect_answers_of_the_whole(Context& ctx, Communicator& ranks,
                                 parallel::ControlChannel& channel, const ModelConfig& config,
                                 std::unique_ptr<Model> part, int times);
// Prompts of several pages, whose rows are spread over the ranks (context parallelism): logits as
// good as those of the whole model. f32: equal within 1e-4.
void expect_long_prompts_of_the_whole(Context& ctx, Communicator& ranks, const ModelConfig& config,
                                      DType dtype = DType::f32);

}  // namespace tessera::test
