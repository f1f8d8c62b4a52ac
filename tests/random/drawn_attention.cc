#include "random/drawn_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/checked.h"
#include "quant/e4m3.h"
#include "reference/rounding.h"
#include "support/compare.h"
#include "tessera/rotary.h"

namespace tessera::test {
namespace {

Array list_of(const std::vector<std::int64_t>& numbers) {
  Array result({std::ssize(numbers)});
  std::copy(numbers.begin(), numbers.end(), result.data.begin());
  return result;
}

std::vector<std::int64_t> sums_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> sums{0};
  for (const std::int64_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

std::int64_t largest(const std::vector<std::int64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

BlockMask draw_pattern(Draws& draws, std::int64_t n_q, std::int64_t n_k) {
  const std::int64_t block = draws.one_of("block", {1, 16, 24, 64, 100, 128, 256});
  const std::int64_t rows = ceil_div(n_q, block), columns = ceil_div(n_k, block);
  const std::size_t kind = draws.word("pattern", {"local", "random", "strided"});
  const std::int64_t reach = draws.between("reach", 0, 3);
  if (kind == 0 || columns == 0) return BlockMask::local(block, rows, columns, reach);
  if (kind == 2) {
    return BlockMask::strided(block, rows, columns, reach, draws.between("stride", 1, 4));
  }
  const std::int64_t per_row = std::clamp<std::int64_t>(reach, 1, columns);
  return BlockMask::random(block, rows, columns, per_row, draws.seed("pattern_seed"));
}

Mask draw_mask(Draws& draws, std::int64_t n_q, std::int64_t n_k) {
  switch (draws.word("mask", {"full", "causal", "window", "sinks", "blocks"})) {
    case 0:
      return Mask::full();
    case 1:
      return Mask::causal();
    case 2: {
      const std::int64_t left = draws.size("left", -1, n_k + 5);
      return Mask::window(left, draws.size("right", -1, n_k + 5));
    }
    case 3: {
      const std::int64_t sinks = draws.size("sinks", 0, n_k + 5);
      return Mask::sinks(sinks, draws.size("window", 1, n_k + 5));
    }
    default: {
      BlockMask pattern = draw_pattern(draws, n_q, n_k);
      return Mask::blocks(std::move(pattern), draws.chance("causal_blocks", 50));
    }
  }
}

// A pool in which the pages of the sequences lie mixed up. Slots without a key hold NaN, and
// entries of the table without a page point nowhere.
void put_into_pages(DrawnAttention& call, const Array& keys, const Array& values,
                    const std::vector<std::int64_t>& lengths, std::int64_t page_size) {
  reference::AttentionInputs& in = call.in;
  const std::int64_t sequences = std::ssize(lengths);
  const auto slot_of = [&](std::int64_t b, std::int64_t j) {
    const bool behind = !in.holes.empty() && j >= in.holes.at(b, 0);
    return j + (behind ? static_cast<std::int64_t>(in.holes.at(b, 1)) : 0);
  };
  std::int64_t most = 1, pool = 2;
  for (std::int64_t b = 0; b < sequences; ++b) {
    const std::int64_t hole = in.holes.empty() ? 0 : static_cast<std::int64_t>(in.holes.at(b, 1));
    most = std::max(most, ceil_div(lengths[static_cast<std::size_t>(b)] + hole, page_size) + 1);
    pool += ceil_div(lengths[static_cast<std::size_t>(b)] + hole, page_size);
  }
  in.k = in.v = Array({pool, page_size, keys.size(2), keys.size(3)}, NAN);
  in.page_table = Array({sequences, most}, -1000);
  in.lengths = list_of(lengths);
  const std::int64_t row = keys.size(2) * keys.size(3);
  std::int64_t used = 0, from = 0;
  for (std::int64_t b = 0; b < sequences; ++b) {
    for (std::int64_t j = 0; j < lengths[static_cast<std::size_t>(b)]; ++j, from += row) {
      double& page = in.page_table.at(b, slot_of(b, j) / page_size);
      if (page < 0) {  // the last page of the pool, the first, the one before the last, ...
        page = static_cast<double>(used % 2 == 0 ? pool - 1 - used / 2 : used / 2);
        ++used;
      }
      const auto at = static_cast<std::int64_t>(page);
      std::copy_n(keys.data.begin() + from, row, in.k.row(at, slot_of(b, j) % page_size, 0));
      std::copy_n(values.data.begin() + from, row, in.v.row(at, slot_of(b, j) % page_size, 0));
    }
  }
}

void draw_holes(Draws& draws, DrawnAttention& call, const std::vector<std::int64_t>& lengths) {
  const std::int64_t sequences = std::ssize(lengths);
  const auto begins = draws.sizes("hole_begin", sequences, 0, largest(lengths) + 2);
  const auto sizes = draws.sizes("hole_size", sequences, 0, 70);
  call.in.holes = Array({sequences, 2});
  for (std::int64_t b = 0; b < sequences; ++b) {
    call.in.holes.at(b, 0) = static_cast<double>(begins[static_cast<std::size_t>(b)]);
    call.in.holes.at(b, 1) = static_cast<double>(sizes[static_cast<std::size_t>(b)]);
  }
}

void draw_rope(Draws& draws, DrawnAttention& call, std::int64_t dim) {
  const std::int64_t pairs = draws.between("rope_pairs", 1, dim / 2);
  const std::vector<float> frequencies = rope_inv_freq(2 * pairs);
  call.in.inv_freq = Array({pairs});
  std::copy(frequencies.begin(), frequencies.end(), call.in.inv_freq.data.begin());
  const std::size_t style = draws.word("rope", {"half_split", "interleaved"});
  call.in.rope_style = style == 0 ? RopeStyle::half_split : RopeStyle::interleaved;
}

void draw_options(Draws& draws, DrawnAttention& call) {
  call.in.scale = static_cast<float>(draws.real("scale", {0.0, 0.0, 0.3, -0.2}));
  call.in.softcap = static_cast<float>(draws.real("softcap", {0.0, 0.0, 2.0, 30.0}));
  call.in.dropout.p = static_cast<float>(draws.real("dropout", {0.0, 0.0, 0.1, 0.5}));
  if (call.in.dropout.p > 0) call.in.dropout.seed = draws.seed("dropout_seed");
}

bool has_8_bits(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::i8; }

// Rows as codes, with one scale for each. Rows without a key, which hold NaN, have the scale NaN.
reference::Scaled in_8_bits(const Array& x, DType stored) {
  reference::Scaled result{Array(x.shape), Array({x.size(0), x.size(2), x.size(1)})};
  const double most = stored == DType::i8 ? 127 : 448;
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t i = 0; i < x.size(1); ++i) {
      for (std::int64_t h = 0; h < x.size(2); ++h) {
        const double* row = x.row(b, i, h);
        double largest_here = 0;
        for (std::int64_t d = 0; d < x.size(3); ++d) {
          largest_here = std::isnan(row[d]) ? NAN : std::max(largest_here, std::abs(row[d]));
        }
        const auto scale = static_cast<float>(largest_here / most);
        result.scales.at(b, h, i) = scale;
        if (!(scale > 0)) continue;
        for (std::int64_t d = 0; d < x.size(3); ++d) {
          const auto ratio = static_cast<float>(row[d] / scale);
          result.codes.at(b, i, h, d) =
              stored == DType::i8 ? std::nearbyint(ratio) : e4m3_decode(e4m3_encode(ratio));
        }
      }
    }
  }
  return result;
}

// The largest norm of a row of numbers; rows with NaN hold no key.
double largest_norm(const Array& x) {
  double result = 0;
  const auto dim = static_cast<std::size_t>(x.size(-1));
  for (std::size_t at = 0; at + dim <= x.data.size(); at += dim) {
    double sum = 0;
    for (std::size_t d = 0; d < dim; ++d) sum += x.data[at + d] * x.data[at + d];
    if (!std::isnan(sum)) result = std::max(result, std::sqrt(sum));
  }
  return result;
}

}  // namespace

DrawnAttention draw_attention(Draws& draws, bool on_cpu, std::int64_t work, AttentionUse use) {
  DrawnAttention call;
  call.dtype = call.stored = draws.dtype("dtype", kFloats);
  if (on_cpu && call.dtype == DType::f32 && use == AttentionUse::inference) {
    call.stored = draws.dtype("stored", kFloats);
  }
  const bool in_codes = use == AttentionUse::inference && draws.chance("eight_bits", 25);
  constexpr DType kCodes[] = {DType::f8e4m3, DType::i8};
  const DType code_dtype = in_codes ? draws.dtype("codes", kCodes) : call.stored;
  // Kernels for simple calls refuse most others: what they take is drawn often.
  const bool simple = draws.chance("simple", 40);
  const bool paged = !simple && use == AttentionUse::inference && draws.chance("paged", 60);
  const bool ragged = !simple && draws.chance("ragged", 50);
  const bool odd_dim = !simple && draws.chance("odd_dim", 20);
  const std::int64_t dim = odd_dim ? draws.between("dim", 1, 256)
                                   : draws.one_of("dim", {8, 16, 32, 64, 80, 96, 128, 256});
  const std::int64_t kv_heads = draws.between("kv_heads", 1, 3);
  const std::int64_t heads = kv_heads * draws.one_of("group", {1, 1, 2, 3, 4, 8});
  const std::int64_t sequences = draws.between("sequences", 1, 4);
  const std::int64_t pairs = std::max<std::int64_t>(1, work / (dim * heads * sequences));

  // Lengths: one for all sequences, or one for each.
  const bool few = use == AttentionUse::inference && draws.chance("few_queries", 40);
  const std::int64_t most_q = few ? 17 : std::min<std::int64_t>(pairs, 2000);
  const auto n_q = draws.sizes("n_q", ragged ? sequences : 1, 0, most_q);
  const std::int64_t most_k = pairs / std::max<std::int64_t>(1, largest(n_q));
  const auto n_k =
      draws.sizes("n_k", ragged || paged ? sequences : 1, 0, std::min<std::int64_t>(most_k, 9000));
  const std::int64_t q_rows = ragged ? sums_of(n_q).back() : n_q[0];
  const std::int64_t k_rows = ragged || paged ? sums_of(n_k).back() : n_k[0];

  const std::uint64_t seed = draws.seed("seed");
  const double spread = draws.real("spread", {1.0, 1.0, 0.1, 3.0});
  const bool one_batch = ragged || paged;
  const auto numbers = [&](std::int64_t batch, std::int64_t rows, std::int64_t of, int what,
                           DType dtype) {
    return reference::rounded(
        random_normal({batch, rows, of, dim}, seed + static_cast<std::uint64_t>(what),
                      what < 3 ? spread : 1.0),
        dtype);
  };
  call.in.q = numbers(ragged ? 1 : sequences, q_rows, heads, 1, call.dtype);
  call.in.k = numbers(one_batch ? 1 : sequences, k_rows, kv_heads, 2, call.stored);
  call.in.v = numbers(one_batch ? 1 : sequences, k_rows, kv_heads, 3, call.stored);
  if (ragged) call.in.q_offsets = sums_of(n_q);
  if (ragged && !paged) call.in.k_offsets = sums_of(n_k);
  if (paged) {
    const std::int64_t page_size = draws.one_of("page_size", {1, 5, 16, 32, 64, 128, 256});
    if (draws.chance("holes", 40)) draw_holes(draws, call, n_k);
    put_into_pages(call, Array(call.in.k), Array(call.in.v), n_k, page_size);
  }
  if (in_codes) {
    call.stored = code_dtype;
    call.k8 = in_8_bits(call.in.k, call.stored);
    call.v8 = in_8_bits(call.in.v, call.stored);
    call.in.k = reference::decoded(call.k8);
    call.in.v = reference::decoded(call.v8);
  }
  call.in.mask = draw_mask(draws, largest(n_q), largest(n_k));
  if (!simple) draw_options(draws, call);
  const bool inference = use == AttentionUse::inference;
  if (!simple && inference && dim >= 2 && draws.chance("rope_on_read", 25)) {
    draw_rope(draws, call, dim);
  }
  call.q_layout = draws.layout("q_layout", simple);
  call.kv_layout = draws.layout("kv_layout", simple);
  call.out_layout = draws.layout("out_layout", simple);
  call.lse = use == AttentionUse::training || draws.chance("lse", 70);
  return call;
}

DrawnAttention DrawnAttention::in_f32() const {
  DrawnAttention call = *this;
  call.dtype = call.stored = DType::f32;
  call.q_layout = call.kv_layout = call.out_layout = Layout::contiguous;
  call.lse = true;
  return call;
}

AttentionOnDevice::AttentionOnDevice(Context& ctx, const DrawnAttention& call)
    : q(ctx, call.in.q, call.dtype, call.q_layout),
      k(ctx, has_8_bits(call.stored) ? call.k8.codes : call.in.k, call.stored, call.kv_layout),
      v(ctx, has_8_bits(call.stored) ? call.v8.codes : call.in.v, call.stored, call.kv_layout),
      out(TestTensor::poisoned(ctx, call.in.q.shape, call.dtype, call.out_layout)),
      lse(TestTensor::poisoned(ctx, {call.in.q.size(0), call.in.q.size(2), call.in.q.size(1)},
                               DType::f32, call.out_layout)),
      args{.q = q,
           .k = k,
           .v = v,
           .out = out,
           .mask = call.in.mask,
           .scale = static_cast<float>(call.in.scale),
           .softcap = static_cast<float>(call.in.softcap),
           .dropout = call.in.dropout} {
  const auto put = [&](std::optional<TestTensor>& tensor, const Array& values, DType dtype) {
    return tensor.emplace(ctx, values, dtype).view();
  };
  const reference::AttentionInputs& in = call.in;
  if (call.lse) args.lse = lse;
  if (!in.q_offsets.empty()) args.q_offsets = put(q_offsets, list_of(in.q_offsets), DType::i32);
  if (!in.k_offsets.empty()) args.k_offsets = put(k_offsets, list_of(in.k_offsets), DType::i32);
  if (!in.page_table.shape.empty()) {
    args.pages.table = put(table, in.page_table, DType::i32);
    args.pages.lengths = put(lengths, in.lengths, DType::i32);
  }
  if (has_8_bits(call.stored)) {
    args.k_scales = put(k_scales, call.k8.scales, DType::f32);
    args.v_scales = put(v_scales, call.v8.scales, DType::f32);
  }
  if (!in.holes.empty()) args.pages.holes = put(holes, in.holes, DType::i32);
  if (!in.inv_freq.empty()) {
    args.rope_on_read = {put(inv_freq, in.inv_freq, DType::f32), in.rope_style};
  }
}

double weight_error(const DrawnAttention& call, bool rounds) {
  const auto dim = static_cast<double>(call.in.q.size(3));
  const double scale = call.in.scale != 0 ? std::abs(call.in.scale) : 1 / std::sqrt(dim);
  const double score = scale * largest_norm(call.in.q) * largest_norm(call.in.k);
  const bool rotated = !call.in.inv_freq.empty();
  // Sums of `dim` products in f32; their rounding errors do not all have one sign. Rotated keys are
  // rounded to the dtype in which keys are stored.
  double error = 0x1p-23 * (4 + std::sqrt(dim)) * score + 0x1p-21 * call.in.softcap;
  const DType rotated_dtype = has_8_bits(call.stored) ? call.dtype : call.stored;
  if (rotated) error += (0x1p-20 + 0.5 * epsilon(rotated_dtype)) * score;
  return std::expm1(2 * error) + 0x1p-20 + (rounds ? 0.55 * epsilon(call.dtype) : 0);
}

// Each weight is off by weight_error(); the output is rounded once. Weights of f16 have subnormals,
// 2^-25 of the largest one.
Array out_bound(const DrawnAttention& call, const Array& exact, const Array& magnitude,
                bool rounds) {
  const double error = weight_error(call, rounds);
  const bool half = call.dtype == DType::f16;
  const double keys = static_cast<double>(call.in.k.size(0) * call.in.k.size(1));
  const double small = (half ? 0x1p-25 : 0) + (half && rounds ? keys * 0x1p-24 * 5 : 0);
  const double rounding = call.dtype == DType::f32 ? 0x1p-22 : 0.51 * epsilon(call.dtype);
  Array bound = magnitude;
  for (std::size_t i = 0; i < bound.data.size(); ++i) {
    bound.data[i] = error * bound.data[i] + rounding * std::abs(exact.data[i]) + small + 1e-30;
  }
  return bound;
}

}  // namespace tessera::test
