// Draws a token for each row, one row after the other: rows are few, and a vocabulary is read in
// microseconds.
#include "cpu/sampling/sample.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/half.h"
#include "core/rows.h"
#include "core/sample_weight.h"
#include "core/type_switch.h"
#include "cpu/sampling/draw.h"

namespace tessera::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float as_f32(float x) { return x; }
template <typename T>
float as_f32(T x) {
  return to_float(x);
}

std::int32_t sample_row(TokenDraw& draw, std::span<const float> logits, const SampleArgs& args,
                        std::uint64_t row) {
  const float largest = draw.find_maxima(logits);
  if (std::isnan(largest) || std::isinf(largest)) return -1;
  if (args.temperature == 0) return draw.first_largest(logits, largest);
  return draw.draw(logits, largest, args, draw_bits(args.seed, args.draw + row));
}

}  // namespace

void sample(Context&, const SampleArgs& args) {
  const Rows logits(args.logits), ids(args.ids);
  TokenDraw draw;
  std::vector<float> row(static_cast<std::size_t>(logits.cols()));
  for (std::int64_t i = 0; i < logits.rows(); ++i) {
    with_float_type(args.logits.dtype, [&](auto type) {
      const auto* from = logits.row<decltype(type)>(i);
      for (std::size_t j = 0; j < row.size(); ++j) row[j] = as_f32(from[j]);
    });
    const std::int32_t id = sample_row(draw, row, args, static_cast<std::uint64_t>(i));
    with_index_type(args.ids.dtype, [&](auto type) {
      using Index = decltype(type);
      ids.row<Index>(i / ids.cols())[i % ids.cols()] = static_cast<Index>(id);
    });
  }
}

}  // namespace tessera::cpu
