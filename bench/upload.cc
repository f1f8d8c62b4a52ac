// The speed of copying weights from host memory to a GPU. The f16 tensors of a random model
// (Llama-7B's shapes, as many layers as --params asks for) are copied as load_model does it. The
// same run measures plain cudaMemcpy from pageable memory (the speed without staging) and from
// pinned memory (the floor: only the link).
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/fail.h"
#include "core/thread_pool.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

// Bytes of each tensor of a model with about this many parameters.
std::vector<std::int64_t> tensor_sizes(double params) {
  constexpr std::int64_t kHidden = 4096, kInner = 11008, kVocab = 32000, kBytes = 2;
  constexpr std::int64_t kAttention = kHidden * kHidden, kMlp = kHidden * kInner;
  constexpr std::int64_t kTable = kVocab * kHidden;
  const double in_layers = params - 2.0 * kTable;
  const auto layers = std::max(1LL, std::llround(in_layers / (4.0 * kAttention + 3.0 * kMlp)));
  std::vector<std::int64_t> sizes{kTable * kBytes};
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    sizes.insert(sizes.end(), 2, kHidden * kBytes);  // norms
    sizes.insert(sizes.end(), 4, kAttention * kBytes);
    sizes.insert(sizes.end(), 3, kMlp * kBytes);
  }
  sizes.insert(sizes.end(), {kHidden * kBytes, kTable * kBytes});
  return sizes;
}

void fill_random(Context& ctx, const Buffer& buffer) {
  constexpr std::int64_t kBlock = 1 << 17;  // words of one task
  const std::int64_t words = buffer.bytes() / 8;
  auto* const data = static_cast<std::uint64_t*>(buffer.data());
  ctx.pool().parallel_for((words + kBlock - 1) / kBlock, [&](std::int64_t block, int) {
    std::uint64_t state = static_cast<std::uint64_t>(block) + 0x9e3779b97f4a7c15;
    for (std::int64_t i = block * kBlock; i < std::min(words, (block + 1) * kBlock); ++i) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift
      data[i] = state;
    }
  });
}

struct RandomModel {
  std::vector<std::int64_t> sizes;  // bytes of each tensor
  Buffer host;                      // all tensors, one after the other
  std::vector<Buffer> on_gpu;
};

// Calls copy(on the GPU, on the host) for each tensor.
template <typename Copy>
void for_each_tensor(const RandomModel& model, Copy&& copy) {
  const char* from = static_cast<const char*>(model.host.data());
  for (const Buffer& tensor : model.on_gpu) {
    copy(tensor, from);
    from += tensor.bytes();
  }
}

// Loads each tensor as load_model does if it is stored in the model's dtype.
void load(Context& ctx, RandomModel& model) {
  const char* from = static_cast<const char*>(model.host.data());
  for (const std::int64_t size : model.sizes) {
    const Buffer& to = model.on_gpu.emplace_back(size, ctx.device());
    copy_bytes(ctx, to.data(), to.device(), from, Device::cpu(), size);
    from += size;
  }
  ctx.synchronize();
}

// Checks that the bytes arrived: the speed of wrong bytes means nothing.
void verify(Context& ctx, const RandomModel& model) {
  for_each_tensor(model, [&](const Buffer& tensor, const char* sent) {
    const Buffer back(tensor.bytes());
    copy_bytes(ctx, back.data(), back.device(), tensor.data(), tensor.device(), back.bytes());
    if (std::memcmp(back.data(), sent, static_cast<std::size_t>(back.bytes())) != 0) {
      fail(ErrorCode::device, "a tensor of {} bytes arrived changed", back.bytes());
    }
  });
}

void plain_copy(const Buffer& to, const void* from) {
  const cudaError_t error =
      cudaMemcpy(to.data(), from, static_cast<std::size_t>(to.bytes()), cudaMemcpyHostToDevice);
  if (error != cudaSuccess) {
    fail(ErrorCode::device, "cudaMemcpy failed: {}", cudaGetErrorString(error));
  }
}

template <typename Run>
double seconds(Run&& run) {
  const Clock::time_point start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void print_row(const char* way, std::int64_t bytes, int threads, std::vector<double> times) {
  const auto speed = [&](double time) {
    return std::round(static_cast<double>(bytes) / time / 1e7) / 100;
  };
  std::sort(times.begin(), times.end());
  fmt::print("{}\n", nlohmann::json{{"way", way},
                                    {"bytes", bytes},
                                    {"threads", threads},
                                    {"gb_per_s", speed(times[times.size() / 2])},
                                    {"spread", {speed(times.back()), speed(times.front())}}}
                         .dump());
}

void measure(double params, int threads, int repeats) {
  Context ctx({.device = Device::cuda(), .threads = threads});
  RandomModel model{.sizes = tensor_sizes(params), .host = {}, .on_gpu = {}};
  model.host = Buffer(std::accumulate(model.sizes.begin(), model.sizes.end(), std::int64_t{0}));
  fill_random(ctx, model.host);
  void* pinned = nullptr;  // as large as the largest tensor; every copy starts here
  const std::int64_t largest = *std::max_element(model.sizes.begin(), model.sizes.end());
  if (cudaMallocHost(&pinned, static_cast<std::size_t>(largest)) != cudaSuccess) {
    fail(ErrorCode::out_of_memory, "{} bytes of host memory could not be pinned", largest);
  }
  const std::unique_ptr<void, cudaError_t (*)(void*)> pinned_owner(pinned, cudaFreeHost);

  std::vector<double> ours, pageable, floor;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    model.on_gpu.clear();
    ours.push_back(seconds([&] { load(ctx, model); }));
    if (repeat == 0) verify(ctx, model);
    pageable.push_back(seconds([&] { for_each_tensor(model, plain_copy); }));
    floor.push_back(seconds([&] {
      for_each_tensor(model, [&](const Buffer& to, const char*) { plain_copy(to, pinned); });
    }));
  }
  print_row("load_model's: allocate, copy_bytes", model.host.bytes(), ctx.threads(), ours);
  print_row("cudaMemcpy, pageable memory", model.host.bytes(), 1, pageable);
  print_row("cudaMemcpy, pinned memory (floor)", model.host.bytes(), 1, floor);
}

}  // namespace

int main(int argc, char** argv) {
  double params = 7e9;
  int threads = 0, repeats = 5;
  CLI::App app("Measures how fast weights are copied to a GPU: one JSON object for each way");
  app.add_option("--params", params, "Parameters, about")->check(CLI::Range(3e8, 1e12));
  app.add_option("--threads", threads, "CPU threads (0: one for each hardware thread)");
  app.add_option("--repeat", repeats, "Number of runs; the median is reported")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    measure(params, threads, repeats);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_upload: {}\n", error.what());
    return 1;
  }
  return 0;
}
