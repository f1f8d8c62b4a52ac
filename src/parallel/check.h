// The checks that every communicator makes before anything is sent.
#pragma once

#include "core/format.h"
#include "tessera/communicator.h"

namespace tessera::parallel {

void check_contiguous(const char* call, const Tensor& tensor);
void check_summable(const char* call, const Tensor& tensor);
void check_whole(const char* call, const Tensor& part, const Tensor& whole, int size);
void check_peer(const char* call, int peer, int size);
// Refuses this rank too: a message to itself would wait for ever.
void check_other(const char* call, int peer, int rank, int size);

}  // namespace tessera::parallel
