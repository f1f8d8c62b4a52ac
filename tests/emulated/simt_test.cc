// The emulated GPU itself: what the kernels' tests rely on, and that it exposes wrong kernels.
// Compiled as a kernel is.
#include "emulated/simt.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tessera::emulated {
namespace {

TEST(EmulatedGpu, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<int> visits(3 * 2 * 40);
  run_grid(dim3(3, 2), dim3(8, 5), 0, [&] {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    ++visits[block * 40 + threadIdx.y * blockDim.x + threadIdx.x];
  });
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

TEST(EmulatedGpu, ShufflesAndVotesAcrossAWarp) {
  std::vector<int> sums(64), evens(64), next(64);
  run_grid(dim3(1), dim3(64), 0, [&] {
    const int thread = static_cast<int>(threadIdx.x);
    int sum = thread;
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    sums[threadIdx.x] = sum;
    evens[threadIdx.x] = __ballot_sync(0xffffffffu, thread % 2 == 0) == 0x55555555u;
    next[threadIdx.x] = __shfl_down_sync(0xffffffffu, thread, 1);
  });
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(sums[static_cast<std::size_t>(i)], i < 32 ? 31 * 16 : 31 * 16 + 32 * 32);
    EXPECT_EQ(evens[static_cast<std::size_t>(i)], 1);
    EXPECT_EQ(next[static_cast<std::size_t>(i)], i % 32 == 31 ? i : i + 1);
  }
}

// Each thread writes a number and reads another's; `barrier` is what has to lie between.
template <typename Barrier>
int wrong_reads(int threads, int distance, Barrier barrier) {
  int wrong = 0;
  for (int launch = 0; launch < 2; ++launch) {  // warps run in either order
    run_grid(dim3(1), dim3(static_cast<unsigned>(threads)), sizeof(int) * 64, [&] {
      int* shared = static_cast<int*>(dynamic_shared_memory());
      const int me = static_cast<int>(threadIdx.x), other = (me + distance) % threads;
      shared[me] = 100 + me;
      barrier();
      wrong += shared[other] != 100 + other;
    });
  }
  return wrong;
}

TEST(EmulatedGpu, AMissingBarrierShows) {
  EXPECT_EQ(wrong_reads(64, 32, [] { __syncthreads(); }), 0);
  EXPECT_GT(wrong_reads(64, 32, [] {}), 0);
  EXPECT_EQ(wrong_reads(32, 1, [] { __syncwarp(); }), 0);
  EXPECT_GT(wrong_reads(32, 1, [] {}), 0);
  EXPECT_GT(wrong_reads(64, 32, [] { __syncwarp(); }), 0);  // of the wrong kind
}

TEST(EmulatedGpu, ThreadsThatHaveEndedAreNotWaitedFor) {
  int passed = 0;
  run_grid(dim3(1), dim3(64), 0, [&] {
    if (threadIdx.x % 2 == 1) return;
    __syncthreads();
    passed += __ballot_sync(0xffffffffu, true) == 0x55555555u;
  });
  EXPECT_EQ(passed, 32);
}

// Some threads only say that they have come, and go on; the barrier opens again and again.
TEST(EmulatedGpu, NamedBarriersKnowWhoWaits) {
  int early = 0, rounds = 0;
  for (int launch = 0; launch < 2; ++launch) {  // warps run in either order
    int made = 0, taken = 0;
    run_grid(dim3(1), dim3(64), 0, [&] {
      const bool makes = threadIdx.x < 32;
      for (int round = 1; round <= 3; ++round) {
        if (makes) ++made;
        named_barrier(5, 64, !makes);
        if (!makes) early += made < 32 * round, ++taken;
        named_barrier(6, 64, makes);
        if (makes) early += taken < 32 * round;
      }
      if (threadIdx.x == 0) rounds += taken;
    });
  }
  EXPECT_EQ(early, 0);
  EXPECT_EQ(rounds, 2 * 3 * 32);
}

// On a GPU such barriers open too early, or never.
TEST(EmulatedGpuDeathTest, ANamedBarrierOutOfStepEndsTheProgram) {
  EXPECT_DEATH(run_grid(dim3(1), dim3(64), 0,
                        [] {
                          named_barrier(5, 64, false);
                          if (threadIdx.x < 32) named_barrier(5, 64, false);
                        }),
               "emulated GPU: a thread comes to a barrier again");
  EXPECT_DEATH(
      run_grid(dim3(1), dim3(64), 0, [] { named_barrier(5, threadIdx.x < 32 ? 64 : 96, false); }),
      "emulated GPU: threads expect different numbers");
}

TEST(EmulatedGpu, SharedMemoryStartsAsRubbish) {
  std::vector<unsigned char> seen;
  run_grid(dim3(2), dim3(1), 2, [&] {
    auto* shared = static_cast<unsigned char*>(dynamic_shared_memory());
    seen.push_back(shared[1]);
    shared[1] = 0;
  });
  EXPECT_EQ(seen, (std::vector<unsigned char>{0xcd, 0xcd}));
}

TEST(EmulatedGpuDeathTest, AnEndlessWaitEndsTheProgram) {
  EXPECT_DEATH(run_grid(dim3(1), dim3(64), 0,
                        [] {
                          if (threadIdx.x < 32) {
                            __syncthreads();
                          } else {
                            __shfl_sync(threadIdx.x < 40 ? 0xffffu : 0xffffffffu, 1, 0);
                          }
                        }),
               "emulated GPU: ");
}

}  // namespace
}  // namespace tessera::emulated
