#include "support/devices.h"

#include <algorithm>
#include <ostream>

#include "core/backend_state.h"
#include "core/build_config.h"
#include "core/cuda_runtime.h"

namespace tessera {

void PrintTo(Device device, std::ostream* to) { *to << to_string(device); }

}  // namespace tessera

namespace tessera::test {

std::vector<Device> test_devices() {
  std::vector<Device> devices{Device::cpu()};
  if (kHaveCuda) devices.push_back(Device::cuda());
  return devices;
}

std::string device_name(const testing::TestParamInfo<Device>& info) {
  return info.param.is_cpu() ? "cpu" : "cuda";
}

bool is_emulated(Device device) {
  const std::vector<DeviceInfo> all = devices();
  return std::any_of(all.begin(), all.end(), [&](const DeviceInfo& info) {
    return info.device == device && info.name == "Fake GPU";
  });
}

std::string why_unusable(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info.unusable;
  }
  return "no usable GPU: " + cuda_status();
}

void DeviceTest::SetUp() {
  if (const std::string reason = why_unusable(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
  ctx_ = context(2);
}

void DeviceTest::TearDown() {
  if (!ctx_ || ctx_->device().is_cpu() || !ctx_->lost().empty()) return;
  EXPECT_NO_THROW(cuda::check_counters(*ctx_->backend_state()));
}

std::unique_ptr<Context> DeviceTest::context(int threads) const {
  return std::make_unique<Context>(
      ContextOptions{.device = GetParam(), .threads = threads, .trace = true});
}

}  // namespace tessera::test
