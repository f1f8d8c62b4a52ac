// Runs of up to 16 queries with more rows than one block of cuda.split takes: cuda.split.run,
// beside every other kernel that takes such a call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/paged_keys.h"
#include "support/sanitizers.h"
#include "tessera/attention.h"
#include "tessera/rotary.h"

namespace tessera::test {
namespace {

class AttentionRunTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionRunTest, testing::ValuesIn(test_devices()), device_name);

// Groups that divide the rows of a block and groups that do not; fewer keys than queries, so that
// whole tiles see nothing; more keys than one block takes.
TEST_P(AttentionRunTest, GroupsLengthsAndMasks) {
  constexpr struct {
    std::int64_t n_q, group;
  } kRuns[] = {{5, 4}, {8, 4}, {16, 4}, {7, 3}, {3, 16}, {2, 9}, {16, 2}};
  const Mask masks[] = {Mask::causal(), Mask::window(40, 0), Mask::sinks(5, 90)};
  Thinned thinned(5);
  std::size_t i = 0;
  for (DType dtype : {DType::f16, DType::bf16}) {
    for (std::int64_t dim : {64, 80, 128}) {
      for (const auto& [n_q, group] : kRuns) {
        for (std::int64_t n_k : {3, 300}) {
          const Mask& mask = masks[i++ % std::size(masks)];
          if (!thinned.takes_next()) continue;
          check_attention_case(ctx(), {.batch = 2,
                                       .n_q = n_q,
                                       .n_k = n_k,
                                       .heads = 2 * group,
                                       .kv_heads = 2,
                                       .dim = dim,
                                       .mask = mask,
                                       .dtype = dtype});
        }
      }
    }
  }
}

TEST_P(AttentionRunTest, CodesSoftcapAndManyKeys) {
  AttentionCase c{.n_q = 9,
                  .n_k = kSanitized ? 1500 : 5003,
                  .heads = 8,
                  .kv_heads = 2,
                  .dim = 128,
                  .mask = Mask::causal(),
                  .dtype = DType::bf16};
  check_attention_case(ctx(), c);
  c.stored = DType::i8;
  check_attention_case(ctx(), c);
  c.n_k = 200;
  c.stored.reset();
  c.softcap = 3.f;
  check_attention_case(ctx(), c);
}

// Lengths are read on the device: every sequence's tiles end where its own keys do.
TEST_P(AttentionRunTest, PagesHolesAndRotatedKeys) {
  const std::vector<std::int64_t> lengths{300, 17, 5, 0, 64};
  const std::vector<Hole> holes{{4, 37}, {4, 5}, {0, 0}, {4, 0}, {16, 32}};
  const std::vector<float> frequencies = rope_inv_freq(64);
  Array inv_freq({32});
  std::copy(frequencies.begin(), frequencies.end(), inv_freq.data.begin());
  const TestTensor frequency_tensor(ctx(), inv_freq, DType::f32);
  const Array keys = random_normal({5, 300, 2, 64}, 5), values = random_normal({5, 300, 2, 64}, 6);
  for (std::int64_t page_size : {3, 16, 64}) {
    for (bool rotated : {false, true}) {
      AttentionTensors t(ctx(), {.batch = 5,
                                 .n_q = 9,
                                 .n_k = 300,
                                 .heads = 8,
                                 .kv_heads = 2,
                                 .mask = Mask::causal(),
                                 .dtype = DType::f16});
      const Paged paged(ctx(), page_size, lengths, keys, values, DType::f16, Layout::contiguous,
                        holes);
      paged.put_into(t.args);
      reference::AttentionInputs in = t.inputs();
      in.k = paged.k_pool->read();
      in.v = paged.v_pool->read();
      in.page_table = paged.table;
      in.lengths = array_of(lengths);
      in.holes = paged.hole_values;
      if (rotated) {
        t.args.rope_on_read = {frequency_tensor, RopeStyle::half_split};
        in.inv_freq = inv_freq;
      }
      const reference::AttentionResult exact = reference::attention(in);
      for_each_attention_kernel(ctx(), t.args, [&] {
        attention(ctx(), t.args);
        EXPECT_TRUE(close(t.out.read(), exact.out, 2e-3, 1e-3));
        EXPECT_TRUE(close(t.lse.read(), exact.lse, 1e-3, 2e-3));
      });
    }
  }
}

}  // namespace
}  // namespace tessera::test
