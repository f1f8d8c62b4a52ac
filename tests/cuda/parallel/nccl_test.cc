// NCCL with one rank: every call runs in the order of the Context's stream, alone and in a captured
// graph, and models run over it. NCCL refuses two ranks on one GPU; what several ranks compute is
// tested with threads (ranks_test.cc).
#include "parallel/nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "core/captured_graph.h"
#include "model/checkpoint/random_weights.h"
#include "parallel/control.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "support/ring_case.h"
#include "support/small_models.h"
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
    if (!parallel::nccl_info().usable) GTEST_SKIP() << "no NCCL: " << parallel::nccl_info().text;
    const std::unique_ptr<Communicator> control = one_rank();
    ranks_ = parallel::make_nccl(ctx(), *control);
  }
  void TearDown() override {
    ranks_.reset();
    DeviceTest::TearDown();
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
  static std::vector<float> all(float value) { return std::vector<float>(kN, value); }

  static constexpr std::int64_t kN = 4099;
  std::unique_ptr<Communicator> ranks_;
};
INSTANTIATE_TEST_SUITE_P(Devices, NcclTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(NcclTest, EveryCallOfOneRank) {
  EXPECT_EQ(ranks_->size(), 1);
  EXPECT_EQ(ranks_->rank(), 0);
  EXPECT_EQ(ranks_->name(), "NCCL");
  const Buffer a = filled(3.f), gathered = filled(0.f), scattered = filled(0.f),
               exchanged = filled(0.f);
  const Tensor whole = gathered.tensor(DType::f32, {1, kN});
  ranks_->all_reduce(ctx(), a.tensor());
  EXPECT_EQ(read(a), all(3.f));
  ranks_->all_gather(ctx(), a.tensor(), whole);
  EXPECT_EQ(read(gathered), all(3.f));
  ranks_->reduce_scatter(ctx(), whole, scattered.tensor());
  EXPECT_EQ(read(scattered), all(3.f));
  ranks_->broadcast(ctx(), a.tensor(), 0);
  EXPECT_EQ(read(a), all(3.f));
  ranks_->start_exchange(ctx(), a.tensor(), 0, exchanged.tensor(), 0)->wait();
  EXPECT_EQ(read(exchanged), all(3.f));
  ranks_->barrier(ctx());
}

TEST_P(NcclTest, SumsOfSixteenBits) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::vector<std::uint16_t> bits(kN, 0x3c00);
    const Buffer data(dtype, {kN}, ctx().device());
    copy_bytes(ctx(), data.data(), data.device(), bits.data(), Device::cpu(), 2 * kN);
    ranks_->all_reduce(ctx(), data.tensor());
    std::vector<std::uint16_t> read_back(kN);
    copy_bytes(ctx(), read_back.data(), Device::cpu(), data.data(), data.device(), 2 * kN);
    ctx().synchronize();
    EXPECT_EQ(read_back, bits);
  }
}

// What the Context enqueues before a call is seen by it, and what it enqueues after wait() sees the
// message, though that travels on a stream of its own.
TEST_P(NcclTest, AnExchangeKeepsTheOrderOfTheStream) {
  const Buffer sent = filled(0.f), received = filled(0.f), after = filled(0.f);
  for (int i = 1; i <= 20; ++i) {
    const Buffer next = filled(static_cast<float>(i));
    copy_bytes(ctx(), sent.data(), sent.device(), next.data(), next.device(), 4 * kN);
    const auto pending = ranks_->start_exchange(ctx(), sent.tensor(), 0, received.tensor(), 0);
    pending->wait();
    copy_bytes(ctx(), after.data(), after.device(), received.data(), received.device(), 4 * kN);
    ASSERT_EQ(read(after), all(static_cast<float>(i)));
  }
}

TEST_P(NcclTest, EveryCallCanBeCaptured) {
  ctx().trace().enable(false);  // it waits for every op, and a capture cannot
  const Buffer a = filled(2.f), gathered = filled(0.f), scattered = filled(0.f),
               exchanged = filled(0.f);
  const Tensor whole = gathered.tensor(DType::f32, {1, kN});
  const auto every_call = [&] {
    ranks_->all_reduce(ctx(), a.tensor());
    ranks_->broadcast(ctx(), a.tensor(), 0);
    ranks_->all_gather(ctx(), a.tensor(), whole);
    ranks_->reduce_scatter(ctx(), whole, scattered.tensor());
    ranks_->start_exchange(ctx(), scattered.tensor(), 0, exchanged.tensor(), 0)->wait();
  };
  every_call();  // NCCL allocates with the first calls
  const Buffer zeros = filled(0.f);
  for (const Buffer* buffer : {&gathered, &scattered, &exchanged}) {
    copy_bytes(ctx(), buffer->data(), buffer->device(), zeros.data(), zeros.device(), 4 * kN);
  }
  ctx().synchronize();
  {
    const CapturedGraph graph = capture(ctx(), every_call);
    EXPECT_EQ(read(exchanged), all(0.f));  // recorded, not run
    for (const float value : {2.f, 5.f}) {
      const Buffer next = filled(value);
      copy_bytes(ctx(), a.data(), a.device(), next.data(), next.device(), 4 * kN);
      graph.launch(ctx());
      EXPECT_EQ(read(gathered), all(value));
      EXPECT_EQ(read(scattered), all(value));
      EXPECT_EQ(read(exchanged), all(value));
    }
  }  // NCCL keeps what a graph uses as long as the graph
}

TEST_P(NcclTest, RefusesWhatItCannotSend) {
  const Buffer data(DType::f32, {4, 6}, ctx().device()), ids(DType::i32, {4}, ctx().device());
  EXPECT_TRUE(refuses([&] { ranks_->all_reduce(ctx(), ids.tensor()); },
                      "all_reduce: sums are of f32, f16 or bf16, got i32[4]"));
  EXPECT_TRUE(refuses([&] { ranks_->broadcast(ctx(), data.tensor(), 3); },
                      "broadcast: there is no rank 3; the ranks are 0 to 0"));
  // Alone, it would wait for itself.
  EXPECT_TRUE(refuses([&] { ranks_->send(ctx(), data.tensor(), 0); }, "send: rank 0 is this rank"));
  EXPECT_TRUE(
      refuses([&] { ranks_->receive(ctx(), data.tensor(), 0); }, "receive: rank 0 is this rank"));
}

TEST_P(NcclTest, RingAttentionOfOneRank) {
  const auto alone = context(1);
  check_ring_forward(*alone, *ranks_, {.tokens = 75, .mask = Mask::causal()});
  check_ring_backward(*alone, *ranks_, {.tokens = 75, .mask = Mask::causal()});
}

class NobodyFollows final : public parallel::ControlChannel {
 public:
  void send_bytes(void*, std::int64_t) override {}
  void receive_bytes(void*, std::int64_t) override {}
  void abort(int status) override { std::_Exit(status); }
};

// As `tessera --parallel tensor:1` and `context:1` run: rank 0 leads, and nobody follows.
TEST_P(NcclTest, AnEngineLeadsOneRank) {
  Context alone({.device = GetParam(), .threads = 1, .graphs = false});
  NobodyFollows channel;
  for (const bool splits_context : {false, true}) {
    const ModelConfig config = small_config(true, 1);
    model::RandomModelOptions options;
    (splits_context ? options.context_parallel : options.tensor_parallel) = ranks_.get();
    auto part = model::make_random_model(alone, config, options);
    expect_answers_of_the_whole(alone, *ranks_, channel, config, std::move(part), 1);
  }
}

}  // namespace
}  // namespace tessera::test
