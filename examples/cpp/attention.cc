// Attention on tensors of your own: causal, with a sliding window, and with attention sinks. The
// operation is the same each time; only the mask differs. One row is checked by hand.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "tessera/tessera.h"

namespace {

// [batch, tokens, heads, dim]: four query heads share each key-value head.
constexpr std::int64_t kTokens = 200, kHeads = 8, kKvHeads = 2, kDim = 64;

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return values;
}

// softmax(q k^T) v for the last query of head 0, over the keys that `visible` accepts.
template <typename Visible>
std::vector<double> last_row(const std::vector<float>& q, const std::vector<float>& k,
                             const std::vector<float>& v, Visible&& visible) {
  const float* query = q.data() + (kTokens - 1) * kHeads * kDim;
  std::vector<double> row(kDim);
  double total = 0;
  for (std::int64_t j = 0; j < kTokens; ++j) {
    if (!visible(j)) continue;
    const std::int64_t at = j * kKvHeads * kDim;  // key-value head 0
    double score = 0;
    for (std::int64_t d = 0; d < kDim; ++d) score += double{query[d]} * k[at + d];
    const double weight = std::exp(score / std::sqrt(double{kDim}));
    for (std::int64_t d = 0; d < kDim; ++d) row[d] += weight * v[at + d];
    total += weight;
  }
  for (double& value : row) value /= total;
  return row;
}

}  // namespace

int main() {
  using tessera::DType;
  using tessera::Mask;
  using tessera::Tensor;
  // A Tensor is a view: it takes the memory you have. Pointers to const make read-only inputs.
  const std::vector<float> q = random_values(kTokens * kHeads * kDim, 1);
  const std::vector<float> k = random_values(kTokens * kKvHeads * kDim, 2);
  const std::vector<float> v = random_values(kTokens * kKvHeads * kDim, 3);
  std::vector<float> out(q.size());

  tessera::Context ctx;
  tessera::AttentionArgs args;
  args.q = Tensor(q.data(), DType::f32, {1, kTokens, kHeads, kDim});
  args.k = Tensor(k.data(), DType::f32, {1, kTokens, kKvHeads, kDim});
  args.v = Tensor(v.data(), DType::f32, {1, kTokens, kKvHeads, kDim});
  args.out = Tensor(out.data(), DType::f32, {1, kTokens, kHeads, kDim});

  double worst = 0;
  for (const Mask& mask : {Mask::causal(), Mask::window(31, 0), Mask::sinks(4, 28)}) {
    args.mask = mask;
    tessera::attention(ctx, args);
    const std::vector<double> expected =
        last_row(q, k, v, [&](std::int64_t j) { return mask.allows(kTokens - 1, kTokens - 1, j); });
    double error = 0;
    const float* row = out.data() + (kTokens - 1) * kHeads * kDim;
    for (std::int64_t d = 0; d < kDim; ++d) error = std::max(error, std::abs(row[d] - expected[d]));
    std::printf("%-16s out[last, 0, 0] = %8.5f, off by at most %.1e\n", mask.to_string().c_str(),
                row[0], error);
    worst = std::max(worst, error);
  }
  return worst < 1e-5 ? 0 : 1;
}
