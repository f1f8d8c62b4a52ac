#include "timer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "noise.h"
#include "profile/ceilings.h"
#include "tessera/linear.h"

namespace tessera::bench {
namespace {

constexpr int kWarmups = 3, kReplays = 15;

void check(cudaError_t error, const char* attempt) {
  if (error != cudaSuccess) {
    fail(ErrorCode::device, "{} failed: {}", attempt, cudaGetErrorString(error));
  }
}

template <typename Handle, cudaError_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <typename Handle, cudaError_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using Executable = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;

Executable capture(cudaStream_t stream, const std::function<void()>& work) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a capture");
  work();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "ending a capture");
  const Graph owner(graph);
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  return Executable(executable);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "creating an event");
  return Event(event);
}

Time summary(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {.us = times[times.size() / 2], .min = times.front(), .max = times.back()};
}

}  // namespace

struct Replay::Captured {
  cudaStream_t stream;
  int calls;
  Executable graph{};
  Event start = make_event(), stop = make_event();
};

Replay::Replay(Context& ctx, int calls, const std::function<void(int)>& call)
    : captured_(std::make_unique<Captured>(
          Captured{.stream = static_cast<cudaStream_t>(ctx.stream()), .calls = calls})) {
  const auto all = [&] {
    for (int i = 0; i < calls; ++i) call(i);
  };
  all();
  call(0);  // by now the workspace has become one block
  ctx.synchronize();
  captured_->graph = capture(captured_->stream, all);
}

Replay::~Replay() = default;

double Replay::operator()() {
  const Captured& c = *captured_;
  check(cudaEventRecord(c.start.get(), c.stream), "recording an event");
  check(cudaGraphLaunch(c.graph.get(), c.stream), "replaying a graph");
  check(cudaEventRecord(c.stop.get(), c.stream), "recording an event");
  check(cudaEventSynchronize(c.stop.get()), "waiting for a graph");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, c.start.get(), c.stop.get()), "reading events");
  return 1e3 * static_cast<double>(ms) / c.calls;
}

Time time_calls(Context& ctx, int calls, const std::function<void(int)>& call) {
  Replay replay(ctx, calls, call);
  for (int i = 0; i < kWarmups; ++i) replay();
  std::vector<double> times(kReplays);
  for (double& time : times) time = replay();
  return summary(std::move(times));
}

std::pair<Time, Time> time_in_turns(Context& ctx, int calls, const std::function<void(int)>& call,
                                    const std::function<void(int)>& other) {
  // Scratch memory must have its last size before the first graph is captured: twice, because it
  // becomes one block at the beginning of the call after it has grown.
  for (int i = 0; i < 2; ++i) {
    call(0);
    other(0);
  }
  Replay first(ctx, calls, call), second(ctx, calls, other);
  for (int i = 0; i < kWarmups; ++i) {
    first();
    second();
  }
  std::vector<double> of_first, of_second;
  for (int i = 0; i < kReplays; ++i) {
    of_first.push_back(first());
    of_second.push_back(second());
  }
  return {summary(std::move(of_first)), summary(std::move(of_second))};
}

int copies_beyond_cache(std::int64_t bytes, int most) {
  constexpr std::int64_t kBeyond = 200'000'000;  // an H200's L2 has 60 MB
  return static_cast<int>(std::clamp<std::int64_t>((kBeyond + bytes - 1) / bytes, 2, most));
}

TracedCall trace_call(Context& ctx, const std::function<void()>& call) {
  ctx.trace().clear();
  ctx.trace().enable();
  call();
  ctx.trace().enable(false);
  const TraceEntry entry = ctx.trace().entries().back();
  return {.kernel = entry.kernel, .bytes = entry.bytes, .flops = entry.flops};
}

double Ceilings::floor_us(std::int64_t bytes, std::int64_t flops) const {
  return 1e6 * std::max(static_cast<double>(bytes) / bytes_per_s,
                        static_cast<double>(flops) / flops_per_s);
}

Ceilings measure_ceilings(Context& ctx) {
  constexpr std::int64_t kSide = 8192;
  const Noise noise(ctx, 1.f);
  const Matrix a = noise.matrix(DType::bf16, kSide, kSide, 1);
  const Matrix b = noise.matrix(DType::bf16, kSide, kSide, 2);
  const Matrix out = noise.matrix(DType::bf16, kSide, kSide, 3);
  const LinearArgs args{.x = a.view, .weight = Weight::dense(b.view), .out = out.view};
  const Time product = time_calls(ctx, 4, [&](int) { linear(ctx, args); });
  return {.bytes_per_s = profile::measure_read_bandwidth(ctx),
          .flops_per_s = 2e6 * static_cast<double>(kSide * kSide * kSide) / product.us};
}

}  // namespace tessera::bench
