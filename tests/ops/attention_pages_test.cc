// Prompts in 16 bits whose keys lie in pages, and ragged batches of them, by every kernel that a
// GPU has for them. Chunks of prompts come after keys that are there already; sequences that decode
// come beside them.
#include <gtest/gtest.h>

#include <vector>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/paged_keys.h"
#include "support/sanitizers.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

class AttentionPagesTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionPagesTest, testing::ValuesIn(test_devices()),
                         device_name);

// A whole prompt, a token, nobody, a chunk of more than one tile, a few rows, no keys, and more
// queries than keys.
const std::vector<std::int64_t> kPromptRows{130, 1, 0, 300, 17, 5, 3, 70};
const std::vector<std::int64_t> kPromptKeys{130, 299, 9, 461, 64, 128, 0, 50};
constexpr std::int64_t kLongestPrompt = 461, kPromptKvHeads = 2;

struct PromptCase {
  std::int64_t dim = 80, group = 1, page_size = 64;
  Mask mask = Mask::causal();
  DType dtype = DType::f16;
};

// With a ragged batch, or with the first sequences' last 20 queries of equal numbers.
void check_prompts_in_pages(Context& ctx, const PromptCase& c, bool ragged) {
  SCOPED_TRACE(testing::Message() << "dim " << c.dim << " group " << c.group << " pages of "
                                  << c.page_size << " " << c.mask.to_string()
                                  << (ragged ? " ragged" : ""));
  const std::vector<std::int64_t> q_at = offsets_of(kPromptRows);
  const std::int64_t sequences = std::ssize(kPromptKeys);
  AttentionTensors t(ctx, {.batch = ragged ? 1 : sequences,
                           .n_q = ragged ? q_at.back() : 20,
                           .n_k = 8,
                           .heads = c.group * kPromptKvHeads,
                           .kv_heads = kPromptKvHeads,
                           .dim = c.dim,
                           .mask = c.mask,
                           .dtype = c.dtype});
  const Paged paged(ctx, c.page_size, kPromptKeys,
                    random_normal({sequences, kLongestPrompt, kPromptKvHeads, c.dim}, 5),
                    random_normal({sequences, kLongestPrompt, kPromptKvHeads, c.dim}, 6), c.dtype,
                    Layout::contiguous);
  paged.put_into(t.args);
  const TestTensor q_offsets(ctx, array_of(q_at), DType::i32);
  if (ragged) t.args.q_offsets = q_offsets;
  reference::AttentionInputs in = t.inputs();
  in.k = paged.k_pool->read();
  in.v = paged.v_pool->read();
  in.page_table = paged.table;
  in.lengths = array_of(kPromptKeys);
  if (ragged) in.q_offsets = q_at;
  const reference::AttentionResult exact = reference::attention(in);
  for_each_attention_kernel(ctx, t.args, [&] {
    const TestTensor out = TestTensor::poisoned(ctx, exact.out.shape, c.dtype);
    const TestTensor lse = TestTensor::poisoned(ctx, exact.lse.shape, DType::f32);
    AttentionArgs args = t.args;
    args.out = out;
    args.lse = lse;
    attention(ctx, args);
    EXPECT_TRUE(close(out.read(), exact.out, epsilon(c.dtype), 2 * epsilon(c.dtype)));
    EXPECT_TRUE(good_lse(lse.read(), exact.lse));
    EXPECT_TRUE(out.surroundings_intact() && lse.surroundings_intact());
  });
}

TEST_P(AttentionPagesTest, PromptsByEveryKernel) {
  Thinned thinned(4);
  for (std::int64_t dim : {64, 80, 96, 128, 256}) {
    for (std::int64_t page_size : {8, 64, 128}) {
      for (bool ragged : {false, true}) {
        if (GetParam().is_cpu() && dim != 80) continue;  // it has one kernel
        if (thinned.takes_next()) {
          check_prompts_in_pages(
              ctx(), {.dim = dim, .group = dim == 128 ? 4 : 1, .page_size = page_size}, ragged);
        }
      }
    }
  }
  for (const Mask& mask : {Mask::full(), Mask::window(100, 0), Mask::sinks(4, 90)}) {
    for (DType dtype : {DType::f16, DType::bf16}) {
      if (thinned.takes_next()) check_prompts_in_pages(ctx(), {.mask = mask, .dtype = dtype}, true);
    }
  }
}

// A sequence has the same bits alone and beside others, in pages and one after the other.
TEST_P(AttentionPagesTest, ASequenceHasTheSameBitsInAnyCompany) {
  const std::vector<std::int64_t> q_at = offsets_of(kPromptRows);
  for (const bool grouped : {false, true}) {
    AttentionTensors t(ctx(), {.n_q = q_at.back(),
                               .n_k = 8,
                               .heads = grouped ? 8 : 2,
                               .kv_heads = kPromptKvHeads,
                               .dim = 128,
                               .mask = Mask::causal(),
                               .dtype = DType::f16});
    const std::int64_t sequences = std::ssize(kPromptKeys);
    const Paged paged(ctx(), 64, kPromptKeys,
                      random_normal({sequences, kLongestPrompt, kPromptKvHeads, 128}, 5),
                      random_normal({sequences, kLongestPrompt, kPromptKvHeads, 128}, 6),
                      DType::f16, Layout::contiguous);
    paged.put_into(t.args);
    const TestTensor q_offsets(ctx(), array_of(q_at), DType::i32);
    AttentionArgs all = t.args;
    all.q_offsets = q_offsets;
    attention(ctx(), all);
    const Array together = t.out.read();
    for (std::int64_t s = 0; s < sequences; ++s) {
      if (kPromptRows[s] == 0) continue;
      AttentionArgs one = t.args;
      for (Tensor* tensor : {&one.q, &one.out}) *tensor = tensor->slice(1, q_at[s], q_at[s + 1]);
      one.lse = {};
      one.pages.table = one.pages.table.slice(0, s, s + 1);
      one.pages.lengths = one.pages.lengths.slice(0, s, s + 1);
      attention(ctx(), one);
    }
    EXPECT_TRUE(identical(together, t.out.read()));
  }
}

}  // namespace
}  // namespace tessera::test
