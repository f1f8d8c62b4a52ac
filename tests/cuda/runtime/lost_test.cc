// A real fault on a GPU, in a child process: the process that meets it can do no more GPU work.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>

#include "support/devices.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/error.h"
#include "tessera/kv_cache.h"
#include "tessera/softmax.h"

namespace tessera::test {
namespace {

class CudaLostTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaLostTest, testing::Values(Device::cuda()), device_name);

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// No system maps the second page of the address space: aligned, not null, and nobody's.
constexpr std::uintptr_t kNobodys = 0x1000;

// Reads and writes there. Returns the number of failed expectations, and prints them.
int lose_the_gpu(Device device) {
  int wrong = 0;
  const auto expect = [&](bool holds, const std::string& what) {
    if (holds) return;
    std::cerr << "not so: " << what << "\n";
    ++wrong;
  };
  {
    Context ctx({.device = device});
    const Buffer buffer(1024, device);
    KvCache cache(ctx, {.layers = 1, .kv_heads = 1, .head_dim = 64, .max_tokens = 8});
    const Tensor bad(reinterpret_cast<void*>(kNobodys), DType::f32, {4, 64}, device);
    const Tensor good = buffer.tensor(DType::f32, {4, 64});
    const auto read = [&] { softmax(ctx, {.x = bad, .out = good}); };

    read();  // the launch itself goes well
    const std::string first = message_of([&] { ctx.synchronize(); });
    std::cerr << first << "\n";
    expect(first == ctx.lost(), "the Context has ended with it");
    expect(message_of(read) == first, "a later op says the same");
    expect(message_of([&] { ctx.synchronize(); }) == first, "and so does waiting");
    const std::string context = message_of([&] { Context other({.device = device}); });
    expect(context.find("is lost") != std::string::npos, "a new Context is refused: " + context);
    const std::string memory = message_of([&] { Buffer other(16, device); });
    expect(memory.find("is lost") != std::string::npos, "new memory is refused: " + memory);

    Context cpu;
    float values[] = {1, 1};
    const Tensor x(values, DType::f32, {2});
    softmax(cpu, {.x = x, .out = x});
    expect(values[0] == 0.5f && values[1] == 0.5f, "the CPU goes on");
  }
  std::cerr << "everything has been given back\n";
  return wrong;
}

TEST_P(CudaLostTest, AFaultEndsItsContextAndTheCpuGoesOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // CUDA does not survive a fork
  EXPECT_EXIT(
      std::exit(lose_the_gpu(GetParam())), testing::ExitedWithCode(0),
      "cuda:0: waiting for the work on cuda:0 failed: cudaErrorIllegalAddress: .*; GPU work "
      "of this process is lost: use the CPU, or start the program again\n"
      "everything has been given back");
}

}  // namespace
}  // namespace tessera::test
