// A CUDA runtime on host memory, for testing the host side of src/cuda on machines without a GPU. A
// program that is linked with fake_runtime.cc needs no cudart.
//
// A stream is a queue. Its work runs only when something waits for it (the stream, an event behind
// it, the device), and not before. So a pinned buffer that is reused too early gives wrong bytes,
// every time. As in CUDA, pageable memory is copied before the call returns.
//
// The machine starts with one GPU and a driver as new as the toolkit. tests/emulated runs kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::test::fake {

struct Gpu {
  std::string name = "Fake GPU";
  int major = 9, minor = 0;
  std::int64_t memory = std::int64_t{1} << 40;  // only what is touched takes real memory
  int multiprocessors = 4;
  std::size_t shared_bytes = 227 << 10;  // the most for one block, as on Hopper
};

// ---- the machine --------------------------------------------------------------------------------

// Resets the machine to its state at the start of the program. Everything still allocated is gone.
void reset();
void set_gpus(const std::vector<Gpu>& gpus);
void set_driver(int version);  // 12080 is CUDA 12.8; 0 means no driver

// ---- failures -----------------------------------------------------------------------------------

// Makes a call such as "cudaMalloc" return this error: the next time, or every time.
void fail_once(const std::string& call, cudaError_t error);
void fail_always(const std::string& call, cudaError_t error);
// As after a fault in a kernel, all calls that do something on a GPU return this error.
void lose_gpus(cudaError_t error);

// ---- what was done ------------------------------------------------------------------------------

struct Counters {
  std::int64_t allocations = 0;       // of device memory
  std::int64_t host_allocations = 0;  // of pinned memory
  std::int64_t copies = 0;            // that were put on a stream
  std::int64_t copied_bytes = 0;
  std::int64_t waits = 0;           // explicit waits: for a stream, an event or the device
  std::int64_t hidden_waits = 0;    // in freeing, and in copies to pageable memory
  std::int64_t default_stream = 0;  // work on the default stream
  std::int64_t attributes = 0;      // of kernels that were set
  std::int64_t overlaps = 0;        // launches that may start before the kernel ahead ends
  std::int64_t all_at_once = 0;     // cooperative launches
};
Counters counters();

// The objects that exist now; all zero if nothing leaks.
struct Live {
  std::int64_t device_blocks = 0, device_bytes = 0, host_blocks = 0, host_bytes = 0;
  std::int64_t streams = 0, events = 0;
  std::int64_t graphs = 0;  // recorded and executable ones
  friend bool operator==(const Live&, const Live&) = default;
};
Live live();

// The number of items waiting on a stream.
std::int64_t queued(cudaStream_t stream);

}  // namespace tessera::test::fake
