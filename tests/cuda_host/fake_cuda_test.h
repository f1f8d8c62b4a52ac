// A test on the fake CUDA runtime. It starts on a fresh machine and must leave nothing allocated.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "cuda_host/fake_runtime.h"
#include "tessera/context.h"
#include "tessera/error.h"

namespace tessera::test {

class FakeCudaTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override {
    if (expect_no_leaks_) {
      EXPECT_EQ(fake::live(), fake::Live{});
    }
  }
  // After a fault nothing can be freed.
  bool expect_no_leaks_ = true;
};

// With a Context on the first fake GPU.
class FakeContextTest : public FakeCudaTest {
 protected:
  void SetUp() override {
    FakeCudaTest::SetUp();
    ctx_.emplace(ContextOptions{.device = Device::cuda()});
  }
  void TearDown() override {
    ctx_.reset();
    FakeCudaTest::TearDown();
  }
  std::optional<Context> ctx_;
};

template <typename F>
Error error_of(F&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::invalid_argument, "nothing was thrown");
}

}  // namespace tessera::test
