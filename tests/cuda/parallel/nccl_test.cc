// NCCL with one rank: every call runs on the Context's stream, alone and in a captured graph.
#include "parallel/nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/captured_graph.h"
#include "support/devices.h"
#include "tessera/buffer.h"
#include "tessera/communicator.h"

namespace tessera::test {
namespace {

class NcclTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (GetParam().is_cpu()) GTEST_SKIP() << "NCCL connects GPUs";
    if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) GTEST_SKIP() << "an emulated GPU";
    if (!parallel::nccl_info().usable) GTEST_SKIP() << parallel::nccl_info().text;
    const std::unique_ptr<Communicator> control = one_rank();
    ranks_ = parallel::make_nccl(ctx(), *control);
  }

  Buffer filled(float value) {
    const std::vector<float> values(kN, value);
    Buffer buffer(DType::f32, {kN}, ctx().device());
    copy_bytes(ctx(), buffer.data(), buffer.device(), values.data(), Device::cpu(), 4 * kN);
    return buffer;
  }
  std::vector<float> read(const Buffer& buffer) {
    std::vector<float> values(kN);
    copy_bytes(ctx(), values.data(), Device::cpu(), buffer.data(), buffer.device(), 4 * kN);
    ctx().synchronize();
    return values;
  }

  static constexpr std::int64_t kN = 4099;
  std::unique_ptr<Communicator> ranks_;
};
INSTANTIATE_TEST_SUITE_P(Devices, NcclTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(NcclTest, EveryCallOfOneRank) {
  EXPECT_EQ(ranks_->size(), 1);
  const Buffer a = filled(3.f), b = filled(0.f);
  const Tensor whole = b.tensor(DType::f32, {1, kN});
  ranks_->all_reduce(ctx(), a.tensor());
  EXPECT_EQ(read(a), std::vector<float>(kN, 3.f));
  ranks_->all_gather(ctx(), a.tensor(), whole);
  EXPECT_EQ(read(b), std::vector<float>(kN, 3.f));
  const Buffer c = filled(0.f);
  ranks_->reduce_scatter(ctx(), whole, c.tensor());
  EXPECT_EQ(read(c), std::vector<float>(kN, 3.f));
  ranks_->broadcast(ctx(), a.tensor(), 0);
  const Buffer d = filled(0.f);
  ranks_->start_exchange(ctx(), a.tensor(), 0, d.tensor(), 0)->wait();
  EXPECT_EQ(read(d), std::vector<float>(kN, 3.f));
  ranks_->barrier(ctx());
}

TEST_P(NcclTest, ASumCanBeCaptured) {
  const Buffer a = filled(2.f), b = filled(0.f);
  const Tensor whole = b.tensor(DType::f32, {1, kN});
  ranks_->all_reduce(ctx(), a.tensor());  // NCCL allocates with the first call
  ctx().synchronize();
  const CapturedGraph graph = capture(ctx(), [&] {
    ranks_->all_reduce(ctx(), a.tensor());
    ranks_->all_gather(ctx(), a.tensor(), whole);
  });
  EXPECT_EQ(read(b), std::vector<float>(kN, 0.f));  // recorded, not run
  graph.launch(ctx());
  EXPECT_EQ(read(b), std::vector<float>(kN, 2.f));
}

}  // namespace
}  // namespace tessera::test
