// One warp for each row, and one for each draw. Rows have only numbers of their own, so no two
// warps write to the same place.
#include "cuda/elementwise/advance_step.h"

#include <algorithm>

#include "cuda/runtime/launch.h"
#include "cuda/runtime/state.h"
#include "cuda/tile/grid_dependency.cuh"

namespace tessera::cuda {
namespace {

constexpr int kLanes = 32;

// Moves the first of the pages to their end.
__device__ void turn_pages(std::int32_t* pages, std::int64_t count) {
  const std::int64_t lane = threadIdx.x;
  const std::int32_t first = pages[0];
  __syncwarp();
  for (std::int64_t begin = 0; begin < count; begin += kLanes) {
    const std::int64_t i = begin + lane;
    const std::int32_t page = i + 1 < count ? pages[i + 1] : first;
    __syncwarp();  // all lanes have read what a neighbour writes
    if (i < count) pages[i] = page;
    __syncwarp();
  }
}

// Writes the ids to the host's memory. One warp does it for all, because all ids go to the same
// place.
__device__ void send_ids(const AdvanceStepCall& call, std::int64_t turn) {
  std::int32_t* const place = call.places[turn % 2];
  for (std::int64_t d = threadIdx.x; d < call.id_count; d += kLanes) place[d] = call.ids[d];
  if (threadIdx.x == 0) *call.turn = turn + 1;
}

// If everything is settled, all but the writes runs while earlier kernels still do. A row whose
// pages turn computes its numbers after that.
__global__ void __launch_bounds__(kLanes) advance_rows_and_draws(AdvanceStepCall call) {
  let_next_kernel_start();
  if (!call.settled) wait_for_earlier_kernels();
  const std::int64_t i = blockIdx.x;
  const bool has_draw = i < call.draw_count;
  std::uint64_t draw = 0;
  if (has_draw) draw = next_draw(call.draws[i].temperature, call.draws[i].draw);
  const bool sends = i == 0 && call.ids != nullptr;
  const std::int64_t turn = sends ? *call.turn : 0;
  StepRow row;
  if (i < call.row_count) row = call.rows[i];
  __syncwarp();  // all lanes have read what the first lane writes
  const bool has_row = row.token >= 0, turns = has_row && row.turns();
  StepRowNumbers numbers;
  if (has_row) {
    row.advance(turns);
    if (!turns) numbers = row.numbers(call.tensors.words);
  }
  if (call.settled) wait_for_earlier_kernels();
  if (sends) send_ids(call, turn);
  if (turns) {
    turn_pages(call.tensors.words + row.line_at(), row.line_end() - row.line_at());
    numbers = row.numbers(call.tensors.words);
  }
  if (threadIdx.x != 0) return;
  if (has_draw) call.draws[i].draw = draw;
  if (!has_row) return;
  row.write(numbers, call.tensors, i);
  call.rows[i].token = row.token;
  call.rows[i].line_begin = row.line_begin;
}

}  // namespace

void advance_step(Context& ctx, const AdvanceStepCall& call) {
  const std::int64_t blocks = std::max(call.row_count, call.draw_count);
  if (blocks == 0) return;
  const Launch launch(ctx, "advance_step");
  launch(advance_rows_and_draws,
         {.blocks = blocks, .threads = kLanes, .overlaps = state_of(ctx).limits().capability >= 90},
         call);
}

}  // namespace tessera::cuda
