#include "core/side_stream.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/captured_graph.h"
#include "cuda/order/late_write.h"
#include "cuda/runtime/int_buffers.h"
#include "support/devices.h"
#include "tessera/buffer.h"

namespace tessera::test {
namespace {

class SideStreamTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam().is_cpu()) GTEST_SKIP() << "the CPU has no streams";
    ctx().trace().enable(false);
    side_ = cuda::make_side_stream(GetParam());
  }

  Buffer filled(std::int32_t value) { return filled_buffer(ctx(), kN, value); }
  std::vector<std::int32_t> read(const Buffer& buffer) { return read_buffer(ctx(), buffer); }
  // A late write on the Context's stream, many copies on the side, and one more by the Context.
  void pass_on(const Buffer& from, const Buffer& written, const Buffer& beside,
               const Buffer& result) {
    write_late(ctx(), from.data(), written.data(), kBytes);
    side_->begin(ctx());
    const auto stream = static_cast<cudaStream_t>(side_->stream());
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(
          cudaMemcpyAsync(beside.data(), written.data(), kBytes, cudaMemcpyDeviceToDevice, stream),
          cudaSuccess);
    }
    side_->end();
    side_->join(ctx());
    copy_bytes(ctx(), result.data(), result.device(), beside.data(), beside.device(), kBytes);
  }

  static constexpr std::int64_t kN = 1 << 16, kBytes = 4 * kN;
  std::unique_ptr<SideStream> side_;
};
INSTANTIATE_TEST_SUITE_P(Devices, SideStreamTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(SideStreamTest, ComesBehindTheContextAndAheadOfWhatFollows) {
  const Buffer written = filled(0), beside = filled(0), result = filled(0);
  for (const std::int32_t value : {7, 8, 9}) {
    const Buffer from = filled(value);
    pass_on(from, written, beside, result);
    EXPECT_EQ(read(result), std::vector<std::int32_t>(kN, value));
  }
}

TEST_P(SideStreamTest, ACaptureRecordsBothStreams) {
  if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) GTEST_SKIP() << "an emulated GPU";
  const Buffer from = filled(5), written = filled(0), beside = filled(0), result = filled(0);
  pass_on(from, written, beside, result);  // loads the kernel
  const Buffer zeros = filled(0);
  copy_bytes(ctx(), result.data(), result.device(), zeros.data(), zeros.device(), kBytes);
  ctx().synchronize();
  const CapturedGraph graph = capture(ctx(), [&] { pass_on(from, written, beside, result); });
  EXPECT_EQ(read(result), std::vector<std::int32_t>(kN, 0));
  graph.launch(ctx());
  EXPECT_EQ(read(result), std::vector<std::int32_t>(kN, 5));
}

}  // namespace
}  // namespace tessera::test
