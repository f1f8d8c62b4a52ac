// One sequence of an attention batch, as the kernels of every back end see it. Dense, ragged and
// paged batches all become a list of these.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tessera {

// Slots of a sequence's pages that hold none of its keys: keys from `begin` on lie `size` slots
// further.
struct Hole {
  std::int64_t begin = 0, size = 0;

  TESSERA_HOST_DEVICE std::int64_t slot(std::int64_t key) const {
    return key < begin ? key : key + size;
  }
};

// Dense: batch b of q, k and v, rows from 0. Ragged: batch 0, rows from the offsets on. Paged: its
// keys are counted from 0 through its row of the page table.
struct Sequence {
  std::int64_t index;
  std::int64_t q_batch, q_begin, n_q;
  std::int64_t k_batch, k_begin, n_k;
  Hole hole{};

  // From a query's row to its position.
  TESSERA_HOST_DEVICE std::int64_t shift() const { return n_k - n_q; }
};

}  // namespace tessera
