#include "ops/check_weight.h"

#include <cmath>

#include "core/half.h"
#include "core/type_switch.h"
#include "quant/codec.h"
#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/format_table.h"

namespace tessera {
namespace {

void check_dense(const OpScope& op, const WeightNames& names, const Weight& weight) {
  op.input(names.data, weight.data, {DType::f32, DType::f16, DType::bf16});
  op.shape(names.data, weight.data, {weight.out_features, weight.in_features});
  op.require(!weight.scales.defined() && !weight.zeros.defined(),
             "{} is dense, so it takes neither scales nor zeros", names.weight);
}

void check_published(const OpScope& op, const WeightNames& names, const Weight& weight) {
  op.require(quant::accepts_group(weight.format, weight.group),
             "{} is {} in groups of {}; accepted: {}", names.weight, name(weight.format),
             weight.group, quant::accepted_groups(weight.format));
  const std::int64_t rows = weight.out_features;
  const std::int64_t blocks = quant::blocks_of_row(weight.group, weight.in_features);
  op.input(names.data, weight.data, {quant::code_dtype(weight.format)});
  op.shape(names.data, weight.data, {rows, quant::row_bytes(weight.format, weight.in_features)});
  check_scale_dtype(op, names.scales, weight);
  op.shape(names.scales, weight.scales, {rows, blocks});
  check_takes_zeros(op, names.weight, weight);
  if (weight.zeros.defined()) {
    op.input(names.zeros, weight.zeros, {quant::code_dtype(weight.format)});
    op.shape(names.zeros, weight.zeros, {rows, blocks});
  }
  if (quant::entry(weight.format).tensor_scale) {
    op.require(std::isfinite(weight.tensor_scale), "{}.tensor_scale is {}; it must be finite",
               names.weight, weight.tensor_scale);
  } else if (weight.tensor_scale != 1.f) {
    op.refuse(
        "{} is {} with a tensor_scale of {}; only {} has one, leave it at 1", names.weight,
        name(weight.format), weight.tensor_scale,
        quant::names_of([](const quant::FormatEntry& e) { return e.tensor_scale != nullptr; }));
  }
}

// Refuses the first scale that is not finite. Scales are stored as T.
template <typename T, typename Decode>
void check_scales(const OpScope& op, const char* arg, const Tensor& scales, Decode decode) {
  for (std::int64_t row = 0; row < scales.shape[0]; ++row) {
    const T* of_row = scales.ptr<const T>() + row * scales.strides[0];
    for (std::int64_t block = 0; block < scales.shape[1]; ++block) {
      const float scale = decode(of_row[block]);
      op.require(std::isfinite(scale), "{}.scales[{}, {}] is {}; a scale must be finite", arg, row,
                 block, scale);
    }
  }
}

void check_float_scales(const OpScope& op, const char* arg, const Tensor& scales) {
  with_float_type(scales.dtype, [&](auto type) {
    using T = decltype(type);
    check_scales<T>(op, arg, scales, [](T x) { return to_float(x); });
  });
}

void check_zeros(const OpScope& op, const char* arg, const Tensor& zeros) {
  for (std::int64_t row = 0; row < zeros.shape[0]; ++row) {
    const auto* of_row = zeros.ptr<const std::uint8_t>() + row * zeros.strides[0];
    for (std::int64_t block = 0; block < zeros.shape[1]; ++block) {
      const int zero = of_row[block];
      op.require(zero <= 15, "{}.zeros[{}, {}] is {}; a zero point is a code from 0 to 15", arg,
                 row, block, zero);
    }
  }
}

}  // namespace

void check_scale_dtype(const OpScope& op, const char* arg, const Weight& weight) {
  if (quant::takes_float_scales(weight.format)) {
    op.input(arg, weight.scales, {DType::f32, DType::f16, DType::bf16});
  } else {
    op.input(arg, weight.scales, {info(weight.format).scale_dtype});
  }
}

void check_takes_zeros(const OpScope& op, const char* arg, const Weight& weight) {
  if (!weight.zeros.defined() || quant::takes_zeros(weight.format)) return;
  op.refuse("{} is {}, and only {} take zeros", arg, name(weight.format),
            quant::names_of([](const quant::FormatEntry& e) { return e.zeros; }));
}

void check_weight(const OpScope& op, const WeightNames& names, const Weight& weight) {
  op.require(weight.defined(), "{} was not given", names.weight);
  op.require(weight.out_features >= 0 && weight.in_features >= 0, "{} has a negative size: {}",
             names.weight, weight);
  if (weight.layout != WeightLayout::published) {
    op.refuse("{} is in the layout {}; give it in the published layout", names.weight,
              weight.layout == WeightLayout::cpu_tiles ? "cpu_tiles" : "cuda_tiles");
  }
  if (weight.format == Format::dense) {
    check_dense(op, names, weight);
  } else {
    check_published(op, names, weight);
  }
}

void check_weight_values(const OpScope& op, const char* arg, const Weight& weight) {
  if (weight.format == Format::dense) return;
  switch (weight.scales.dtype) {
    case DType::f8e4m3:
      check_scales<std::uint8_t>(op, arg, weight.scales, e4m3_decode);
      break;
    case DType::u8:
      check_scales<std::uint8_t>(op, arg, weight.scales, e8m0_decode);
      break;
    default:
      check_float_scales(op, arg, weight.scales);
  }
  // Of 8 bits, every byte is a zero point.
  if (weight.zeros.defined() && info(weight.format).bits == 4) check_zeros(op, arg, weight.zeros);
}

}  // namespace tessera
