// Attention calls for tests. A few numbers describe a case; these functions make its tensors and
// arguments, its float64 reference, and a plain computation of the same precision.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reference/attention.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "tessera/attention.h"

namespace tessera::test {

// Every kind of mask, at sizes for which some tiles are full, some partial and some skipped.
std::vector<Mask> every_mask(std::int64_t n_q, std::int64_t n_k);

// The dtypes that keys and values may have if q is f32. A GPU takes only f32.
std::vector<DType> stored_dtypes_of_f32(Device device);

struct AttentionCase {
  std::int64_t batch = 1, n_q = 113, n_k = 113, heads = 2, kv_heads = 2, dim = 64;
  Mask mask{};
  DType dtype = DType::f32;
  // The dtype of k and v, if it is not `dtype`. If it has 8 bits, their scales are drawn too.
  std::optional<DType> stored{};
  Layout layout = Layout::contiguous;
  float scale = 0.f, softcap = 0.f;
  Dropout dropout{};
  double spread = 1.0;        // standard deviation of q and k
  double value_spread = 1.0;  // and of v
  DType stored_dtype() const { return stored.value_or(dtype); }
  std::string text() const;
};

// A dense call: q, k and v drawn from fixed seeds, and poisoned outputs.
struct AttentionTensors {
  AttentionTensors(Context& ctx, const AttentionCase& c);
  // The call as the reference sees it: inputs rounded to their dtype, codes times scales.
  reference::AttentionInputs inputs() const;

  TestTensor q, k, v, k_scales, v_scales, out, lse;
  AttentionArgs args;
};

// The simplest attention, in the given precision: the whole matrix at once, with scores and weights
// rounded to the dtype and sums in f32. Dense only. With scales of 8-bit values, [batch, kv_heads,
// keys], a weight is rounded together with the scale of its value.
Array plain_attention(const reference::AttentionInputs& in, DType dtype,
                      const Array& v_scales = Array{});
// The kernels that can run these gradients: "" for the one that is chosen, then all others.
std::vector<std::string> backward_kernels(Context& ctx, const AttentionBackwardArgs& args);
// attention_backward() by one of them.
void run_backward(Context& ctx, const std::string& kernel, const AttentionBackwardArgs& args);

reference::AttentionGradients plain_attention_backward(const reference::AttentionInputs& in,
                                                       const Array& d_out, DType dtype);

// As good as `plain`, with room for two units of f32 at the largest element. A different order of
// summation may cost that much if plain happens to be exact.
testing::AssertionResult good(const Array& actual, const Array& exact, const Array& plain);
// For a log-sum-exp. Scores in f32 have an error of about 1e-6; -inf must be -inf.
testing::AssertionResult good_lse(const Array& actual, const Array& exact);

// Calls fn() once for each kernel of the Context's device that can run attention(args), with that
// kernel forced. Calls it just once on the CPU, or if a kernel is forced already.
void for_each_attention_kernel(Context& ctx, const AttentionArgs& args,
                               const std::function<void()>& fn);

// Runs the call on the kernel that takes every layout on a GPU. This is for tests that compare
// layouts bit by bit, because the fastest kernel is not the same for all of them.
void portable_attention(Context& ctx, const AttentionArgs& args);

// Runs the call on every kernel that takes it, compares with the reference, and checks that nothing
// around the outputs was written.
void check_attention_case(Context& ctx, const AttentionCase& c);

// Checks that values in blocks that a row of blocks does not see are never multiplied by its
// weights. A NaN there would show, because 0 * NaN is NaN. `pattern` has square blocks; it is the
// mask of the case, which has one head.
void check_hidden_blocks_stay_unread(Context& ctx, const AttentionCase& c, const BlockMask& pattern,
                                     std::int64_t block);

}  // namespace tessera::test
