// Writing a test of an op once and running it on every device:
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

// The CPU and, in a build with CUDA, the first GPU, whether this machine has one or not: a test
// that cannot run has to show as skipped, not to vanish.
std::vector<Device> test_devices();

// "cpu", "cuda": the end of the test's name, by which ctest labels it.
std::string device_name(const testing::TestParamInfo<Device>& info);

// Empty where the device can be used; else why it cannot.
std::string why_unusable(Device device);

class DeviceTest : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override;
  // With tracing on.
  Context& ctx() { return *ctx_; }
  // One more Context on the same device.
  std::unique_ptr<Context> context(int threads) const;

 private:
  std::unique_ptr<Context> ctx_;
};

}  // namespace tessera::test
