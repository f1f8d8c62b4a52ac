#include "cuda_host/fake_machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tessera::test::fake {

namespace {

// As in CUDA, an empty list or -1 hides all GPUs.
Machine visible_machine() {
  Machine machine;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible && (*visible == '\0' || *visible == '-')) machine.gpus.clear();
  return machine;
}

}  // namespace

Machine& machine() {
  static Machine the_machine = visible_machine();
  return the_machine;
}

std::recursive_mutex& mutex() {
  static std::recursive_mutex the_mutex;
  return the_mutex;
}

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) machine().last = error;
  return error;
}

cudaError_t injected(const char* call) {
  const auto found = machine().failures.find(call);
  if (found == machine().failures.end()) return cudaSuccess;
  const Failure failure = found->second;
  if (failure.once) machine().failures.erase(found);
  return failure.error;
}

cudaError_t no_gpu() {
  if (machine().driver / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  return machine().gpus.empty() ? cudaErrorNoDevice : cudaSuccess;
}

// ---- work ---------------------------------------------------------------------------------------

namespace {

void run_next(CUstream_st& stream) {
  const std::function<void()> next = std::move(stream.work.front());
  stream.work.pop_front();
  next();
}

}  // namespace

void push(CUstream_st& stream, std::function<void()> work) {
  if (stream.capturing) {
    stream.captured.push_back(std::move(work));
  } else {
    stream.work.push_back(std::move(work));
  }
}

bool may_wait(CUstream_st& stream) {
  stream.spoilt |= stream.capturing;
  return !stream.capturing;
}

bool may_allocate() {
  bool may = true;
  for (CUstream_st* stream : machine().streams) {
    if (!stream->capturing || stream->mode == cudaStreamCaptureModeRelaxed) continue;
    stream->spoilt = true;
    may = false;
  }
  return may;
}

void drain(CUstream_st& stream) {
  while (!stream.work.empty()) run_next(stream);
}

void drain_all() {
  drain(machine().per_thread);
  for (CUstream_st* stream : machine().streams) drain(*stream);
}

void reach(const std::shared_ptr<Record>& record) {
  while (record && !record->reached) run_next(*record->stream);
}

cudaError_t enqueue(const char* name, cudaStream_t stream, std::function<void()> work) {
  return enter(name, [&] {
    CUstream_st* on = find(stream);
    if (!on) return cudaErrorInvalidResourceHandle;
    push(*on, std::move(work));
    return cudaSuccess;
  });
}

CUstream_st* find(cudaStream_t stream) {
  if (stream == cudaStreamPerThread) return &machine().per_thread;
  if (stream == nullptr || stream == cudaStreamLegacy) {
    ++machine().counters.default_stream;
    return &machine().per_thread;
  }
  return machine().streams.count(stream) ? stream : nullptr;
}

// ---- memory -------------------------------------------------------------------------------------

namespace {

// The block that holds these bytes; null for pageable memory.
const Block* block_of(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  for (const auto& [begin, block] : machine().blocks) {
    if (at >= begin && at + bytes <= begin + block.bytes) return &block;
  }
  return nullptr;
}

bool pinned(const void* data, std::size_t bytes) {
  const Block* block = block_of(data, bytes);
  return block && block->device < 0;
}

}  // namespace

bool on_device(const void* data, std::size_t bytes) {
  const Block* block = block_of(data, bytes);
  return block && block->device >= 0;
}

cudaError_t allocate(void** data, std::size_t bytes, int device) {
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  // Blocks come from the heap, so that a sanitizer knows their ends. Large blocks are only address
  // space.
  constexpr std::size_t kMostOfHeap = std::size_t{1} << 30, kAlignment = 256;
  const bool mapped = bytes > kMostOfHeap;
  void* made = nullptr;
  if (mapped) {
    made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
    if (made == MAP_FAILED) return cudaErrorMemoryAllocation;
  } else if (posix_memalign(&made, kAlignment, bytes) != 0) {
    return cudaErrorMemoryAllocation;
  }
  constexpr std::size_t kPoisoned = 1 << 20;  // nobody may rely on zeros
  std::memset(made, 0xcd, std::min(bytes, kPoisoned));
  machine().blocks[static_cast<char*>(made)] = {static_cast<std::int64_t>(bytes), device, mapped};
  *data = made;
  return cudaSuccess;
}

static void give_back(void* data, const Block& block) {
  if (block.mapped) {
    munmap(data, static_cast<std::size_t>(block.bytes));
  } else {
    std::free(data);
  }
}

cudaError_t release(void* data, bool host) {
  if (!data) return cudaSuccess;
  const auto found = machine().blocks.find(static_cast<char*>(data));
  if (found == machine().blocks.end() || (found->second.device < 0) != host) {
    return cudaErrorInvalidValue;
  }
  ++machine().counters.hidden_waits;
  drain_all();
  give_back(data, found->second);
  machine().blocks.erase(found);
  return cudaSuccess;
}

std::int64_t used_bytes(int device) {
  std::int64_t used = 0;
  for (const auto& [begin, block] : machine().blocks) {
    if (block.device == device) used += block.bytes;
  }
  return used;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 CUstream_st& stream) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!to_device && !from_device) return cudaErrorInvalidMemcpyDirection;
  if (to_device != on_device(to, bytes) || from_device != on_device(from, bytes)) {
    return cudaErrorInvalidValue;
  }
  ++machine().counters.copies;
  machine().counters.copied_bytes += static_cast<std::int64_t>(bytes);
  if (from_device || pinned(from, bytes)) {
    push(stream, [=] { std::memcpy(to, from, bytes); });
  } else {
    const auto* begin = static_cast<const char*>(from);
    push(stream, [to, staged = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
    });
  }
  if (!to_device && !pinned(to, bytes)) {
    if (!may_wait(stream)) return cudaErrorStreamCaptureUnsupported;
    ++machine().counters.hidden_waits;
    drain(stream);
  }
  return cudaSuccess;
}

// ---- fake_runtime.h -----------------------------------------------------------------------------

void reset() {
  for (CUstream_st* stream : machine().streams) delete stream;
  for (CUevent_st* event : machine().events) delete event;
  for (CUgraph_st* graph : machine().graphs) delete graph;
  for (CUgraphExec_st* executable : machine().executables) delete executable;
  for (const auto& [begin, block] : machine().blocks) give_back(begin, block);
  machine() = Machine();
}
void set_gpus(const std::vector<Gpu>& gpus) { machine().gpus = gpus; }
void set_driver(int version) { machine().driver = version; }
void fail_once(const std::string& call, cudaError_t error) {
  machine().failures[call] = {error, true};
}
void fail_always(const std::string& call, cudaError_t error) {
  machine().failures[call] = {error, false};
}
void lose_gpus(cudaError_t error) { machine().lost = machine().last = error; }
Counters counters() { return machine().counters; }

Live live() {
  Live result{.streams = std::ssize(machine().streams),
              .events = std::ssize(machine().events),
              .graphs = std::ssize(machine().graphs) + std::ssize(machine().executables)};
  for (const auto& [begin, block] : machine().blocks) {
    (block.device < 0 ? result.host_blocks : result.device_blocks) += 1;
    (block.device < 0 ? result.host_bytes : result.device_bytes) += block.bytes;
  }
  return result;
}

std::int64_t queued(cudaStream_t stream) {
  const CUstream_st* found = find(stream);
  return found ? std::ssize(found->work) : 0;
}

}  // namespace tessera::test::fake
