// Packs a dense matrix in two passes over its rows. The first pass finds the largest magnitude and
// refuses values that are not finite, before any memory is allocated. The second pass encodes.
#include "cuda/quant/quantize.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "core/build_config.h"
#include "core/checked.h"
#include "core/rows.h"
#include "core/thread_pool.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/elementwise/for_each_row.h"
#include "ops/op_scope.h"
#include "quant/codec.h"
#include "quant/format_table.h"
#include "tessera/quant.h"

namespace tessera {
namespace {

// The packed weight that the options ask for, without its memory. Refuses options that do not fit
// together.
Weight plan(const QuantizeOptions& options, std::int64_t out_features, std::int64_t in_features) {
  const auto require = [](bool holds, const std::string& message) {
    if (!holds) throw Error(ErrorCode::invalid_argument, "quantize: " + message);
  };
  const FormatInfo& format = info(options.format);
  require(options.format != Format::dense, "dense is not a packed format; choose one of formats()");
  require(out_features > 0 && in_features > 0,
          fmt::format("a matrix of {} x {} weights was given; it needs at least one row and column",
                      out_features, in_features));
  require(
      !options.zero_point || options.format == Format::int4,
      fmt::format("zero points were asked for with {}; they are made only for int4", format.name));
  const std::int64_t group = options.group == -1 ? format.default_group : options.group;
  require(quant::accepts_group(options.format, group),
          fmt::format("{} in groups of {} was asked for; accepted: {}", format.name, group,
                      quant::accepted_groups(options.format)));

  const DType code_dtype = quant::code_dtype(options.format);
  const std::int64_t row_bytes = quant::row_bytes(options.format, in_features);
  const std::int64_t blocks = quant::blocks_of_row(group, in_features);
  Weight weight;
  weight.format = options.format;
  weight.out_features = out_features;
  weight.in_features = in_features;
  weight.group = group;
  weight.data = Tensor(nullptr, code_dtype, {out_features, row_bytes});
  weight.scales = Tensor(nullptr, format.scale_dtype, {out_features, blocks});
  if (options.zero_point) weight.zeros = Tensor(nullptr, DType::u8, {out_features, blocks});
  return weight;
}

// Memory for all parts, each on a boundary of Buffer::kAlignment.
PackedWeight allocate(Weight weight, Device device) {
  const std::int64_t scales_at = checked_align(weight.data.bytes(), Buffer::kAlignment);
  const std::int64_t zeros_at =
      checked_align(checked_add(scales_at, weight.scales.bytes()), Buffer::kAlignment);
  PackedWeight packed{weight, Buffer(checked_add(zeros_at, weight.zeros.bytes()), device)};
  char* base = static_cast<char*>(packed.storage.data());
  const auto place = [&](Tensor& part, std::int64_t offset) {
    part.device = device;
    if (part.defined() && base) part.data = base + offset;
  };
  place(packed.weight.data, 0);
  place(packed.weight.scales, scales_at);
  place(packed.weight.zeros, zeros_at);
  return packed;
}

// The largest magnitude of a row, as the bits of its f32. Magnitudes compare like their bits, and
// infinity and NaN compare above all finite numbers.
template <typename T>
std::uint32_t largest_bits(const T* x, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(to_float(x[i])) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

constexpr std::uint32_t kInfinityBits = 0x7f800000u;

[[noreturn]] void refuse_not_finite(const OpScope& op, std::int64_t row, std::int64_t column,
                                    float value) {
  op.refuse("dense[{}, {}] is {}; only finite weights can be packed", row, column, value);
}

// Finds the largest magnitude of the matrix. Refuses NaN and infinity.
float scan(Context& ctx, const OpScope& op, const Tensor& dense) {
  const Rows rows(dense);
  Workspace::Frame frame(ctx.workspace());
  auto* of_row = frame.take<std::uint32_t>(rows.rows());
  std::uint32_t largest = 0;
  with_float_type(dense.dtype, [&](auto type) {
    using T = decltype(type);
    cpu::for_each_row(ctx.pool(), rows.rows(), rows.cols(), [&](std::int64_t row, int) {
      of_row[row] = largest_bits(rows.row<T>(row), rows.cols());
    });
    for (std::int64_t row = 0; row < rows.rows(); ++row) {
      largest = std::max(largest, of_row[row]);
      if (largest < kInfinityBits) continue;
      const T* x = rows.row<T>(row);
      std::int64_t column = 0;
      while (largest_bits(x + column, 1) < kInfinityBits) ++column;
      refuse_not_finite(op, row, column, to_float(x[column]));
    }
  });
  return std::bit_cast<float>(largest);
}

// Does the same on the Context's device.
float largest_of(Context& ctx, const OpScope& op, const Tensor& dense) {
  if (ctx.device().is_cpu()) return scan(ctx, op, dense);
  if constexpr (kHaveCuda) {
    const cuda::Scan found = cuda::scan(ctx, dense);
    if (!found.finite) refuse_not_finite(op, found.row, found.column, found.value);
    return found.largest;
  } else {
    op.no_kernel();
  }
}

void encode(Context& ctx, const Tensor& dense, const Weight& weight, ScaleSearch search) {
  const Rows rows(dense);
  Workspace::Frame frame(ctx.workspace());
  auto* scratch = frame.take<float>(checked_mul(ctx.threads(), rows.cols()));
  with_float_type(dense.dtype, [&](auto type) {
    using T = decltype(type);
    cpu::for_each_row(ctx.pool(), rows.rows(), rows.cols(), [&](std::int64_t row, int worker) {
      const T* from = rows.row<T>(row);
      float* x = scratch + worker * rows.cols();
      for (std::int64_t k = 0; k < rows.cols(); ++k) x[k] = to_float(from[k]);
      quant::encode_row(weight, row, x, search);
    });
  });
}

}  // namespace

std::int64_t packed_bytes(const QuantizeOptions& options, std::int64_t out_features,
                          std::int64_t in_features) {
  return plan(options, out_features, in_features).bytes();
}

PackedWeight quantize(Context& ctx, const Tensor& dense, const QuantizeOptions& options) {
  const OpScope op(ctx, "quantize");
  op.input("dense", dense, {DType::f32, DType::f16, DType::bf16});
  op.shape("dense", dense, {-1, -1});
  const Weight planned = plan(options, dense.shape[0], dense.shape[1]);
  PackedWeight packed;
  op.run([&] { return "dense " + to_string(dense) + " weight " + to_string(planned); },
         [&] {
           const float largest = largest_of(ctx, op, dense);
           packed = allocate(planned, ctx.device());
           if (const auto tensor_scale = quant::entry(options.format).tensor_scale) {
             packed.weight.tensor_scale = tensor_scale(largest, options.search);
           }
           if (ctx.device().is_cpu()) {
             encode(ctx, dense, packed.weight, options.search);
             return "cpu";
           }
           if constexpr (kHaveCuda) cuda::encode(ctx, dense, packed.weight, options.search);
           return "cuda";
         },
         [&] {
           return OpCost{dense.bytes() + packed.weight.bytes(), 0};
         });
  return packed;
}

}  // namespace tessera
