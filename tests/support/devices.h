// Write a test of an op once, and run it on every device:
//
//   class NormTest : public DeviceTest {};
//   TEST_P(NormTest, DoesIt) { layer_norm(ctx(), args); ... }
//   INSTANTIATE_TEST_SUITE_P(Devices, NormTest, testing::ValuesIn(test_devices()), device_name);
#pragma once

#include <gtest/gtest.h>

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "tessera/context.h"
#include "tessera/device.h"

namespace tessera {

void PrintTo(Device device, std::ostream* to);  // how googletest shows a parameter

}  // namespace tessera

namespace tessera::test {

// The CPU and, in a build with CUDA, the first GPU. The GPU is listed even if this machine has
// none: a test that cannot run must show up as skipped, not vanish.
std::vector<Device> test_devices();

// "cpu" or "cuda": the end of the test's name, which decides its ctest label.
std::string device_name(const testing::TestParamInfo<Device>& info);

// Whether the device is the GPU of tests/emulated, which is slow and runs one block at a time.
bool is_emulated(Device device);

// Empty if the device can be used, otherwise the reason why it cannot.
std::string why_unusable(Device device);

class DeviceTest : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override;
  // On a GPU, the test fails if a kernel of ctx() has left anything but zeros in the counters, on
  // which the next kernel relies.
  void TearDown() override;
  // A Context with tracing on.
  Context& ctx() { return *ctx_; }
  // Another Context on the same device.
  std::unique_ptr<Context> context(int threads) const;

 private:
  std::unique_ptr<Context> ctx_;
};

}  // namespace tessera::test
