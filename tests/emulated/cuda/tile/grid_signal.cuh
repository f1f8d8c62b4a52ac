// Replaces src/cuda/tile/grid_signal.cuh. Blocks run one after the other, so a grid whose blocks
// wait for each other must have one block. The listener need not look at a signal again and again:
// the finishers of its own block tell it.
#pragma once

#include <cstdint>

#include "emulated/simt.h"

namespace tessera::cuda {

template <int workers, int finishers>
struct GridSignals {
  static constexpr int kOfWorkers = 1, kOfFinishers = 2, kFirst = 3, kRaised = 16;

  static void sync_workers() { emulated::named_barrier(kOfWorkers, workers, true); }
  static void hand_over(int number) {
    emulated::named_barrier(kFirst + 2 * number, workers + finishers, false);
  }
  static void take_over(int number) {
    emulated::named_barrier(kFirst + 2 * number, workers + finishers, true);
  }
  static void raise(int number, std::int32_t* signal) {
    emulated::named_barrier(kOfFinishers, finishers, true);
    if (threadIdx.x == workers) ++*signal;
    emulated::named_barrier(kRaised + number, finishers + 32, false);
    arrive_at_receive(number);
  }
  static void pass_on(int number, const std::int32_t* /*signal*/, std::int32_t /*times*/) {
    emulated::named_barrier(kRaised + number, finishers + 32, true);
    arrive_at_receive(number);
  }
  static void receive(int number) {
    emulated::named_barrier(kFirst + 1 + 2 * number, kAtReceive, true);
  }

 private:
  static constexpr int kAtReceive = workers + finishers + 32;

  static void arrive_at_receive(int number) {
    emulated::named_barrier(kFirst + 1 + 2 * number, kAtReceive, false);
  }
};

}  // namespace tessera::cuda
