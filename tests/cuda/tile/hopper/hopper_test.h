// Tests of what only a Hopper GPU has.
#pragma once

#include <gtest/gtest.h>

#include "cuda/runtime/hopper_kernels.h"
#include "cuda/runtime/state.h"
#include "support/devices.h"

namespace tessera::test {

class HopperTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::has_hopper_kernels(cuda::state_of(ctx()).limits())) GTEST_SKIP() << "no Hopper GPU";
  }
};

}  // namespace tessera::test
