// rotary_append() against the float64 twins of rotary() and kv_append().
#include "tessera/rotary_append.h"

#include <algorithm>
#include <numeric>

#include "core/checked.h"
#include "random/ops.h"
#include "reference/kv_append.h"
#include "reference/rotary.h"
#include "reference/rounding.h"
#include "support/compare.h"

namespace tessera::test {
namespace {

// Distinct slots: every third, then the others.
Array scattered_slots(std::int64_t tokens, std::int64_t slots) {
  Array result({tokens});
  for (std::int64_t i = 0, slot = 0; i < tokens; ++i, slot += 3) {
    if (slot >= slots) slot = slot % 3 + 1;
    result.at(i) = static_cast<double>(slot);
  }
  return result;
}

// [tokens, heads, dim] as reference::rotary() wants it, and back.
Array rotated_rows(Array x, const Array& positions, const Array& inv_freq, RopeStyle style) {
  const std::vector<std::int64_t> shape = x.shape;
  x.shape.insert(x.shape.begin(), 1);
  x = reference::rotary(x, positions, inv_freq, style);
  x.shape = shape;
  return x;
}

// One rounding to the dtype, of sums of two products of numbers below 5 in f32.
Array rotary_bound(const Array& exact, DType dtype) {
  Array bound = exact;
  for (double& x : bound.data) {
    x = 0x1p-19 + (dtype == DType::f32 ? 0 : 0.51 * epsilon(dtype) * std::abs(x) + 0x1p-25);
  }
  return bound;
}

}  // namespace

void random_rotary_append(Trial& trial) {
  Draws& draws = trial.draws;
  const DType dtype = draws.dtype("dtype", kFloats);
  const bool may_differ = trial.on_cpu() && dtype == DType::f32;
  const DType stored = may_differ ? draws.dtype("stored", kFloats) : dtype;
  const std::int64_t dim = draws.chance("odd_dim", 20)
                               ? draws.between("dim", 2, 256)
                               : draws.one_of("dim", {64, 80, 96, 128, 256});
  const std::int64_t kv_heads = draws.between("kv_heads", 1, 8);
  const std::int64_t heads = kv_heads * draws.one_of("group", {1, 2, 3, 4, 8});
  const std::int64_t most = std::clamp<std::int64_t>(trial.work / 8 / (heads * dim), 1, 300);
  const std::int64_t tokens = draws.size("tokens", 0, most);
  const std::int64_t page_size = draws.one_of("page_size", {1, 3, 16, 64, 256});
  const std::int64_t pairs = draws.between("pairs", 1, dim / 2);
  const RopeStyle style = draws.word("rope", {"half_split", "interleaved"}) == 0
                              ? RopeStyle::half_split
                              : RopeStyle::interleaved;
  const bool rotate_keys = draws.chance("rotate_keys", 70);
  const DType whole[] = {DType::i32, DType::i64};
  const DType position_dtype = draws.dtype("positions", whole);
  const std::int64_t last_position = draws.one_of("last_position", {100, 10000, 2000000});
  const Layout layout = draws.layout("layout"), page_layout = draws.layout("page_layout");
  const std::uint64_t seed = draws.seed("seed");

  trial.begin("any");
  const std::int64_t pages = ceil_div(tokens + 5, page_size) + 1;
  Array frequencies({pairs});
  const std::vector<float> inv_freq = rope_inv_freq(2 * pairs);
  std::copy(inv_freq.begin(), inv_freq.end(), frequencies.data.begin());
  Context& ctx = trial.ctx;
  const TestTensor q(ctx, random_normal({tokens, heads, dim}, seed + 1), dtype, layout);
  const TestTensor k(ctx, random_normal({tokens, kv_heads, dim}, seed + 2), dtype, layout);
  const TestTensor v(ctx, random_normal({tokens, kv_heads, dim}, seed + 3), dtype, layout);
  const TestTensor positions(ctx, random_integers({tokens}, seed + 4, 0, last_position),
                             position_dtype);
  const TestTensor frequency_tensor(ctx, frequencies, DType::f32);
  const TestTensor slots(ctx, scattered_slots(tokens, pages * page_size), DType::i32);
  const auto pool = [&] {
    return TestTensor::poisoned(ctx, {pages, page_size, kv_heads, dim}, stored, page_layout);
  };
  const TestTensor k_pages = pool(), v_pages = pool();
  const TestTensor q_out = TestTensor::poisoned(ctx, {tokens, heads, dim}, dtype, layout);
  const Array before = k_pages.read();
  rotary_append(
      ctx,
      {q, k, v, positions, {frequency_tensor, style}, rotate_keys, slots, k_pages, v_pages, q_out});

  const Array rotated_q = rotated_rows(q.read(), positions.read(), frequencies, style);
  const Array keys =
      rotate_keys ? rotated_rows(k.read(), positions.read(), frequencies, style) : k.read();
  const Array in_pages = reference::kv_append(keys, slots.read(), before);
  trial.expect_within(q_out.read(), rotated_q, rotary_bound(rotated_q, dtype), "q_out");
  Array got = k_pages.read(), expected = in_pages;
  for (std::size_t i = 0; i < got.data.size(); ++i) {  // slots that nobody writes keep their NaN
    if (std::isnan(expected.data[i]) && std::isnan(got.data[i])) got.data[i] = expected.data[i] = 0;
  }
  trial.expect_within(got, expected, rotary_bound(expected, stored), "k_pages");
  trial.expect(identical(v_pages.read(), reference::kv_append(reference::rounded(v.read(), stored),
                                                              slots.read(), before)),
               "v_pages");
  trial.expect(
      q_out.surroundings_intact() && k_pages.surroundings_intact() && v_pages.surroundings_intact(),
      "something around an output was written");
  trial.expect(q.untouched() && k.untouched() && v.untouched(), "an input was written");
}

}  // namespace tessera::test
