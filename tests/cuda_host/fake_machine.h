// The machine behind the fake CUDA runtime: its GPUs, memory, streams, and the failures to inject.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_host/fake_runtime.h"

// What cudaStream_t points to.
struct CUstream_st {
  std::deque<std::function<void()>> work;
  bool capturing = false, spoilt = false;  // spoilt: something waited during the capture
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::vector<std::function<void()>> captured;
};

// What cudaGraph_t and cudaGraphExec_t point to.
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};

namespace tessera::test::fake {

struct Record {  // one cudaEventRecord
  CUstream_st* stream = nullptr;
  bool reached = false;
  bool captured = false;  // it belongs to a graph, and nobody can wait for it
  std::int64_t tick = 0;  // when it was reached, on the fake GPU's clock
};

}  // namespace tessera::test::fake

// What cudaEvent_t points to.
struct CUevent_st {
  std::shared_ptr<tessera::test::fake::Record>
      last;  // null: never recorded, which counts as reached
};

namespace tessera::test::fake {

struct Block {
  std::int64_t bytes = 0;
  int device = -1;      // -1: pinned host memory
  bool mapped = false;  // from mmap(), otherwise from the heap
};

struct Failure {
  cudaError_t error = cudaSuccess;
  bool once = false;
};

struct Machine {
  std::vector<Gpu> gpus{Gpu{}};
  int driver = CUDART_VERSION;
  int current = 0;  // the current GPU; CUDA has one for each thread
  std::map<std::string, Failure> failures;
  cudaError_t lost = cudaSuccess;
  cudaError_t last = cudaSuccess;
  Counters counters;
  std::map<char*, Block> blocks;
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  CUstream_st per_thread;  // cudaStreamPerThread
  std::int64_t ticks = 0;  // a microsecond for each event

  const Gpu& current_gpu() const { return gpus[static_cast<std::size_t>(current)]; }
};

Machine& machine();
std::recursive_mutex& mutex();  // held by every call

// Remembers an error for cudaGetLastError() and returns it.
cudaError_t report(cudaError_t error);
// The error that the test wants this call to return.
cudaError_t injected(const char* call);
// The reason why there is no GPU, or success.
cudaError_t no_gpu();

// Runs a call that works on a GPU, unless an error was injected or there is no GPU.
template <typename Call>
cudaError_t enter(const char* name, Call&& call) {
  const std::lock_guard lock(mutex());
  for (const cudaError_t error : {no_gpu(), machine().lost}) {
    if (error != cudaSuccess) return report(error);
  }
  const cudaError_t error = injected(name);
  return report(error != cudaSuccess ? error : call());
}

// Puts the work of the call `name` on a stream.
cudaError_t enqueue(const char* name, cudaStream_t stream, std::function<void()> work);

// Returns null for a stream that does not exist.
CUstream_st* find(cudaStream_t stream);
// Appends work to the stream's queue, or to the graph that it captures.
void push(CUstream_st& stream, std::function<void()> work);
// A wait inside a capture spoils it.
bool may_wait(CUstream_st& stream);
// As may_wait(), for calls that only a relaxed capture, of any stream, allows.
bool may_allocate();
void drain(CUstream_st& stream);
void drain_all();
void reach(const std::shared_ptr<Record>& record);

bool on_device(const void* data, std::size_t bytes);
// Large blocks are only address space, so that a fake GPU can have more memory than this machine.
// Device -1 is pinned host memory.
cudaError_t allocate(void** data, std::size_t bytes, int device);
cudaError_t release(void* data, bool host);
std::int64_t used_bytes(int device);
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 CUstream_st& stream);

}  // namespace tessera::test::fake
