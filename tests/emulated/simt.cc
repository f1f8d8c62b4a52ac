#include "emulated/simt.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#error "the emulated GPU switches stacks in x86-64 assembly"
#endif

namespace tessera::emulated {

constinit ThreadIndex current_thread{};

namespace {

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

// ---- stacks -------------------------------------------------------------------------------------

// Stores the registers that a call must preserve on the current stack, keeps the stack's top in
// *from, and continues where `to` was left.
extern "C" void tessera_switch_stack(void** from, void* to);
asm(R"(
  .text
  .type tessera_switch_stack, @function
tessera_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tessera_switch_stack, .-tessera_switch_stack
)");

// The sanitizer's frames are several times larger.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 << 10;
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

constexpr unsigned kMostThreads = 1024;  // of a block

enum class State : std::uint8_t { ready, at_warp, at_block, at_named, ended };

struct Thread {
  State state = State::ended;
  void* top = nullptr;  // of its stack, while it does not run
  uint3 index{};
  void* payload = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#endif
};

// A step that some lanes of a warp wait to take together.
struct WarpStep {
  unsigned mask = 0, came = 0;
  void (*step)(Payloads) = nullptr;
};

struct Warp {
  unsigned living = 0;               // lanes that have not ended
  std::vector<WarpStep> waited_for;  // no lane is in the mask of two
};

// Of those that have numbers: for how many threads it opens, who came since it opened last, and who
// of them waits.
struct NamedBarrier {
  int threads = 0, came = 0;
  std::bitset<kMostThreads> who;
  std::vector<int> waiting;
};

// The block that is running: one at a time, on one thread of the machine.
struct Block {
  const std::function<void()>* body = nullptr;
  int size = 0, ended = 0, at_barrier = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::array<NamedBarrier, 32> named;
  std::vector<void*> payloads;
  void (*step)(Payloads, int) = nullptr;
  int current = -1;
  void* scheduler = nullptr;  // the top of the caller's stack
  std::unique_ptr<std::byte[]> stacks;
  std::size_t stack_count = 0;
  std::vector<std::byte> shared;
  bool reversed = false;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  const void* caller_bottom = nullptr;
  std::size_t caller_size = 0;
#endif

  std::byte* stack(int thread) {
    return stacks.get() + kStackBytes * static_cast<std::size_t>(thread);
  }
  Thread& self() { return threads[static_cast<std::size_t>(current)]; }
  Warp& warp_of(int thread) { return warps[static_cast<std::size_t>(thread / kWarpSize)]; }
};

Block& block() {
  static Block running;
  return running;
}

// From a thread to the scheduler.
void leave(bool for_good) {
  Block& b = block();
  Thread& self = b.self();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &self.fake_stack, b.caller_bottom,
                                 b.caller_size);
#else
  static_cast<void>(for_good);
#endif
  tessera_switch_stack(&self.top, b.scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self.fake_stack, nullptr, nullptr);
#endif
}

// From the scheduler to a thread; back when that waits or ends.
void resume(int thread) {
  Block& b = block();
  b.current = thread;
  current_thread.thread = b.self().index;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&b.fake_stack, b.stack(thread), kStackBytes);
#endif
  tessera_switch_stack(&b.scheduler, b.self().top);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(b.fake_stack, nullptr, nullptr);
#endif
}

void finish_warp_steps(int first);
void finish_block_step();

[[noreturn]] void thread_main() {
  Block& b = block();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &b.caller_bottom, &b.caller_size);
#endif
  (*b.body)();
  b.self().state = State::ended;
  b.warp_of(b.current).living &= ~(1u << (b.current % kWarpSize));
  ++b.ended;
  finish_warp_steps(b.current / kWarpSize * kWarpSize);
  finish_block_step();
  leave(true);
  give_up("a thread went on after its end");
}

void start(int thread) {
  Block& b = block();
  // A top that tessera_switch_stack can resume: six registers and a return address. At a
  // function's first instruction the stack is 8 bytes off a multiple of 16.
  auto* top = reinterpret_cast<void**>(b.stack(thread) + kStackBytes) - 1;
  *--top = reinterpret_cast<void*>(&thread_main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  b.threads[static_cast<std::size_t>(thread)].top = top;
  b.threads[static_cast<std::size_t>(thread)].state = State::ready;
  b.warp_of(thread).living |= 1u << (thread % kWarpSize);
}

// ---- steps that are taken together --------------------------------------------------------------

bool is_complete(const Warp& warp, const WarpStep& step) {
  return step.came == (step.mask & warp.living);
}

void take_warp_step(int first, std::vector<WarpStep>::iterator complete) {
  Block& b = block();
  const WarpStep now = *complete;
  b.warp_of(first).waited_for.erase(complete);
  std::array<void*, kWarpSize> payloads{};
  for (int i = 0; i < kWarpSize; ++i) {
    if ((now.came >> i & 1u) == 0) continue;
    Thread& thread = b.threads[static_cast<std::size_t>(first + i)];
    payloads[static_cast<std::size_t>(i)] = thread.payload;
    thread.state = State::ready;
  }
  now.step(payloads.data());
}

// After a lane of the warp has ended: others may have waited for no one else.
void finish_warp_steps(int first) {
  Warp& warp = block().warp_of(first);
  const auto find = [&] {
    return std::find_if(warp.waited_for.begin(), warp.waited_for.end(),
                        [&](const WarpStep& step) { return is_complete(warp, step); });
  };
  for (auto found = find(); found != warp.waited_for.end(); found = find()) {
    take_warp_step(first, found);
  }
}

void finish_block_step() {
  Block& b = block();
  if (b.at_barrier == 0 || b.at_barrier + b.ended < b.size) return;
  b.payloads.assign(static_cast<std::size_t>(b.size), nullptr);
  for (int i = 0; i < b.size; ++i) {
    Thread& thread = b.threads[static_cast<std::size_t>(i)];
    if (thread.state != State::at_block) continue;
    b.payloads[static_cast<std::size_t>(i)] = thread.payload;
    thread.state = State::ready;
  }
  b.at_barrier = 0;
  b.step(b.payloads.data(), b.size);
}

// Runs the lanes of a warp until each has ended or stands at the block's barrier.
bool run_warp(int first) {
  Block& b = block();
  const int lanes = std::min(kWarpSize, b.size - first);
  bool ran = false, again = true;
  while (again) {
    again = false;
    for (int i = 0; i < lanes; ++i) {
      if (b.threads[static_cast<std::size_t>(first + i)].state != State::ready) continue;
      resume(first + i);
      again = ran = true;
    }
  }
  return ran;
}

void run_block() {
  Block& b = block();
  b.ended = b.at_barrier = 0;
  b.named = {};
  b.warps.assign(static_cast<std::size_t>((b.size + kWarpSize - 1) / kWarpSize), {});
  for (int i = 0; i < b.size; ++i) start(i);
  const int warps = static_cast<int>(b.warps.size());
  while (b.ended < b.size) {
    bool ran = false;
    for (int w = 0; w < warps; ++w) {
      ran |= run_warp((b.reversed ? warps - 1 - w : w) * kWarpSize);
    }
    if (!ran) give_up("threads wait at a barrier or shuffle that others never reach");
  }
}

void prepare(dim3 size, std::size_t shared_bytes) {
  Block& b = block();
  if (size.x * size.y * size.z > kMostThreads) give_up("a block of more than 1024 threads");
  b.size = static_cast<int>(size.x * size.y * size.z);
  current_thread.block_size = size;
  b.threads.resize(static_cast<std::size_t>(b.size));
  for (int i = 0; i < b.size; ++i) {
    const auto at = static_cast<unsigned>(i);
    b.threads[at].index = {at % size.x, at / size.x % size.y, at / (size.x * size.y)};
  }
  if (b.stack_count < b.threads.size()) {
    b.stack_count = b.threads.size();
    b.stacks = std::make_unique_for_overwrite<std::byte[]>(kStackBytes * b.stack_count);
  }
  // Its own allocation for each launch, of the exact size: a sanitizer sees reads past its end.
  b.shared = std::vector<std::byte>(shared_bytes);
}

}  // namespace

void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& body) {
  Block& b = block();
  prepare(size, shared_bytes);
  b.body = &body;
  current_thread.grid_size = grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        current_thread.block = {x, y, z};
        std::fill(b.shared.begin(), b.shared.end(), std::byte{0xcd});  // nobody may rely on zeros
        run_block();
      }
    }
  }
  b.reversed = !b.reversed;
}

int lane_index() { return block().current % kWarpSize; }
void* dynamic_shared_memory() { return block().shared.data(); }

void warp_together(unsigned mask, void* payload, void (*step)(Payloads)) {
  Block& b = block();
  Thread& self = b.self();
  Warp& warp = b.warp_of(b.current);
  const unsigned bit = 1u << (b.current % kWarpSize);
  if ((mask & bit) == 0) give_up("a lane takes part in a step whose mask leaves it out");
  const auto overlaps = [&](const WarpStep& w) { return (w.mask & mask) != 0; };
  auto mine = std::find_if(warp.waited_for.begin(), warp.waited_for.end(), overlaps);
  if (mine == warp.waited_for.end()) {
    mine = warp.waited_for.insert(mine, {.mask = mask, .came = 0, .step = step});
  } else if (mine->mask != mask || mine->step != step) {
    give_up("lanes of a warp are at different steps");
  }
  mine->came |= bit;
  self.payload = payload;
  self.state = State::at_warp;
  if (!is_complete(warp, *mine)) return leave(false);
  take_warp_step(b.current / kWarpSize * kWarpSize, mine);
}

void block_together(void* payload, void (*step)(Payloads, int)) {
  Block& b = block();
  Thread& self = b.self();
  if (b.at_barrier != 0 && b.step != step) give_up("threads of a block are at different barriers");
  b.step = step;
  ++b.at_barrier;
  self.payload = payload;
  self.state = State::at_block;
  finish_block_step();
  if (self.state == State::at_block) leave(false);
}

void named_barrier(int number, int threads, bool waits) {
  Block& b = block();
  NamedBarrier& barrier = b.named.at(static_cast<std::size_t>(number));
  const auto self = static_cast<std::size_t>(b.current);
  if (barrier.came > 0 && barrier.threads != threads) {
    give_up("threads expect different numbers of others at a barrier");
  }
  if (barrier.who[self]) give_up("a thread comes to a barrier again before it has opened");
  barrier.threads = threads;
  barrier.who[self] = true;
  if (waits) {
    b.self().state = State::at_named;
    barrier.waiting.push_back(b.current);
  }
  if (++barrier.came == threads) {
    for (const int thread : barrier.waiting) {
      b.threads[static_cast<std::size_t>(thread)].state = State::ready;
    }
    barrier = {};
  }
  if (b.self().state == State::at_named) leave(false);
}

}  // namespace tessera::emulated
