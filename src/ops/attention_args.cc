#include "ops/attention_args.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "core/sequence.h"
#include "cpu/attention/layout.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostDims = 256;

void check_shapes(const OpScope& op, const AttentionArgs& args) {
  const Tensor &q = args.q, &k = args.k, &v = args.v;
  op.input("q", q, {DType::f32, DType::f16, DType::bf16});
  op.require(q.rank == 4, "q must be [batch, queries, heads, dim], got {}", q);
  op.require(q.shape[2] >= 1, "q has no heads: {}", q);
  op.require(q.shape[3] >= 1 && q.shape[3] <= kMostDims,
             "head dim {} of q is not supported; it must be in 1..{}", q.shape[3], kMostDims);
  op.stored_input("k", k, "q", q);
  op.input("v", v, {k.dtype});
  const char* expected =
      args.pages.defined() ? "[pages, page_size, kv_heads, dim]" : "[batch, keys, kv_heads, dim]";
  op.require(k.rank == 4, "k must be {}, got {}", expected, k);
  op.same_shape("v", v, "k", k);
  op.require(k.shape[3] == q.shape[3], "k has head dim {}, q has {}; they must be equal",
             k.shape[3], q.shape[3]);
  op.require(k.shape[2] >= 1 && q.shape[2] % k.shape[2] == 0,
             "the {} heads of k and v must divide the {} heads of q", k.shape[2], q.shape[2]);
  op.scales_of("k", k, "k_scales", args.k_scales, /*written=*/false);
  op.scales_of("v", v, "v_scales", args.v_scales, /*written=*/false);
  op.output("out", args.out, {q.dtype});
  op.same_shape("out", args.out, "q", q);
  if (args.lse.defined()) {
    op.output("lse", args.lse, {DType::f32});
    op.shape("lse", args.lse, {q.shape[0], q.shape[2], q.shape[1]});
  }
}

void check_values(const OpScope& op, const AttentionArgs& args) {
  op.require(std::isfinite(args.scale), "scale is {}; it must be finite, or 0 for 1 / sqrt(dim)",
             args.scale);
  op.require(std::isfinite(args.softcap) && args.softcap >= 0,
             "softcap is {}; it must be positive and finite, or 0 for none", args.softcap);
  op.require(args.dropout.p >= 0 && args.dropout.p < 1, "dropout p is {}; it must be in [0, 1)",
             args.dropout.p);
}

void check_rope_on_read(const OpScope& op, const AttentionArgs& args) {
  if (!args.rope_on_read.defined()) return;
  const Tensor& inv_freq = args.rope_on_read.inv_freq;
  op.input("rope_on_read.inv_freq", inv_freq, {DType::f32});
  op.shape("rope_on_read.inv_freq", inv_freq, {-1});
  op.require(args.rope_on_read.dims() <= args.q.shape[3],
             "rope_on_read rotates {} dims, more than the head dim {}", args.rope_on_read.dims(),
             args.q.shape[3]);
}

// Offsets, lengths and page numbers can be read on the CPU only: reading the memory of a GPU would
// mean waiting for all earlier work. There, the kernel has to cope with what they hold.
bool readable(const Tensor& tensor) { return tensor.device.is_cpu(); }

// Offsets of a ragged batch: from 0, not falling, up to the total.
void check_offsets(const OpScope& op, const char* arg, const Tensor& offsets, const char* of,
                   const Tensor& tensor) {
  op.input(arg, offsets, {DType::i32});
  op.shape(arg, offsets, {-1});
  op.require(offsets.shape[0] >= 1, "{} is empty; it must hold one number more than sequences",
             arg);
  op.require(tensor.shape[0] == 1,
             "{} {} must have batch 1 where {} is given: sequences lie one after the other", of,
             tensor, arg);
  if (!readable(offsets)) return;
  const std::int32_t* at = offsets.ptr<const std::int32_t>();
  const std::int64_t last = offsets.shape[0] - 1;
  op.require(at[0] == 0, "{} starts with {}; it must start with 0", arg, at[0]);
  for (std::int64_t i = 0; i < last; ++i) {
    op.require(at[i] <= at[i + 1], "{} falls from {} to {} at sequence {}; it must not fall", arg,
               at[i], at[i + 1], i);
  }
  op.require(at[last] == tensor.shape[1], "{} ends with {}; {} has {} rows", arg, at[last], of,
             tensor.shape[1]);
}

void check_ragged(const OpScope& op, const AttentionArgs& args) {
  const bool q_ragged = args.q_offsets.defined(), k_ragged = args.k_offsets.defined();
  if (q_ragged) check_offsets(op, "q_offsets", args.q_offsets, "q", args.q);
  if (args.pages.defined()) {
    op.require(!k_ragged, "k_offsets cannot be given with pages, which have lengths of their own");
    return;
  }
  op.require(q_ragged == k_ragged, "q_offsets and k_offsets must be given together");
  if (!k_ragged) {
    op.require(args.k.shape[0] == args.q.shape[0], "k has batch {}, q has {}; they must be equal",
               args.k.shape[0], args.q.shape[0]);
    return;
  }
  check_offsets(op, "k_offsets", args.k_offsets, "k", args.k);
  op.require(args.q_offsets.shape[0] == args.k_offsets.shape[0],
             "q_offsets holds {} numbers, k_offsets {}; each must hold one more than sequences",
             args.q_offsets.shape[0], args.k_offsets.shape[0]);
}

// Checks that the keys of sequence b lie in its pages, and these in the pool. Pages that hold none
// of its keys, after the last or within the hole, may be anything.
void check_page_numbers(const OpScope& op, const AttentionArgs& args, std::int64_t b) {
  const Tensor& table = args.pages.table;
  const std::int64_t pool = args.k.shape[0], page_size = args.k.shape[1];
  const std::int64_t capacity = table.shape[1] * page_size;
  const std::int64_t length = args.pages.lengths.ptr<const std::int32_t>()[b];
  op.require(length >= 0 && length <= capacity,
             "sequence {} has length {}; its {} pages of {} keys hold 0..{}", b, length,
             table.shape[1], page_size, capacity);
  const Hole hole = cpu::hole_of(args.pages, b);
  op.require(hole.begin >= 0 && hole.size >= 0,
             "sequence {} has a hole of {} slots at {}; neither may be negative", b, hole.size,
             hole.begin);
  op.require(hole.begin >= length || length + hole.size <= capacity,
             "sequence {} has length {} and a hole of {} slots; its {} pages of {} keys hold {}", b,
             length, hole.size, table.shape[1], page_size, capacity);
  const std::int32_t* pages = table.ptr<const std::int32_t>() + b * table.strides[0];
  const auto check_slots = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin / page_size; i < ceil_div(end, page_size); ++i) {
      op.require(pages[i] >= 0 && pages[i] < pool,
                 "page {} of sequence {} is {}; the pool holds pages 0..{}", i, b, pages[i],
                 pool - 1);
    }
  };
  const std::int64_t before = std::min(hole.begin, length);
  if (before > 0) check_slots(0, before);
  if (before < length) check_slots(before + hole.size, length + hole.size);
}

void check_pages(const OpScope& op, const AttentionArgs& args) {
  if (!args.pages.defined()) {
    op.require(!args.pages.lengths.defined(), "pages.lengths was given without pages.table");
    op.require(!args.pages.holes.defined(), "pages.holes was given without pages.table");
    return;
  }
  const Tensor &table = args.pages.table, &lengths = args.pages.lengths;
  const std::int64_t sequences = cpu::sequence_count(args);
  op.input("pages.table", table, {DType::i32});
  op.shape("pages.table", table, {sequences, -1});
  op.input("pages.lengths", lengths, {DType::i32});
  op.shape("pages.lengths", lengths, {sequences});
  if (args.pages.holes.defined()) {
    op.input("pages.holes", args.pages.holes, {DType::i32});
    op.shape("pages.holes", args.pages.holes, {sequences, 2});
  }
  op.require(args.k.shape[1] >= 1, "k {} has pages of no keys", args.k);
  if (!readable(table)) return;
  for (std::int64_t b = 0; b < sequences; ++b) check_page_numbers(op, args, b);
}

// Sequence b as far as the host knows it. If lengths cannot be read, the rows of a ragged batch
// count as divided evenly, and a page table as full.
Sequence known_sequence(const AttentionArgs& args, std::int64_t b) {
  if (readable(args.q)) return cpu::sequence_of(args, b);
  const std::int64_t n = cpu::sequence_count(args);
  const auto share = [&](std::int64_t rows) { return (b + 1) * rows / n - b * rows / n; };
  Sequence s{b, b, 0, args.q.shape[1], b, 0, args.k.shape[1]};
  if (args.q_offsets.defined()) s.n_q = share(s.n_q);
  if (args.k_offsets.defined()) s.n_k = share(s.n_k);
  if (args.pages.defined()) s.n_k = args.pages.table.shape[1] * args.k.shape[1];
  return s;
}

void check_pattern(const OpScope& op, const AttentionArgs& args) {
  if (args.mask.kind() != Mask::Kind::blocks) return;
  const BlockMask& pattern = args.mask.pattern();
  const bool lengths_vary = args.q_offsets.defined() || args.pages.defined();
  if (lengths_vary && !readable(args.q)) return;
  for (std::int64_t b = 0; b < cpu::sequence_count(args); ++b) {
    const Sequence s = known_sequence(args, b);
    const std::int64_t q_blocks = ceil_div(s.n_q, pattern.block());
    const std::int64_t k_blocks = ceil_div(s.n_k, pattern.block());
    op.require(q_blocks <= pattern.q_blocks() && k_blocks <= pattern.k_blocks(),
               "the mask covers {} x {} blocks of {}; {} queries and {} keys need {} x {}",
               pattern.q_blocks(), pattern.k_blocks(), pattern.block(), s.n_q, s.n_k, q_blocks,
               k_blocks);
  }
}

// Keys that the query at row i, position p, sees.
std::int64_t visible_keys(const Mask& mask, std::int64_t i, std::int64_t p, std::int64_t n_k) {
  const std::int64_t begin =
      mask.left() < 0 ? 0 : std::max<std::int64_t>(0, p - std::min(p, mask.left()));
  const std::int64_t end = mask.right() < 0 || mask.right() >= n_k - 1 - p
                               ? n_k
                               : std::max<std::int64_t>(0, p + mask.right() + 1);
  if (mask.kind() != Mask::Kind::blocks) {
    const std::int64_t sinks = std::min({mask.n_sink(), begin, end});
    return std::max<std::int64_t>(0, end - begin) + std::max<std::int64_t>(0, sinks);
  }
  const std::int64_t block = mask.pattern().block();
  if (i / block >= mask.pattern().q_blocks()) return 0;
  std::int64_t count = 0;
  for (std::int64_t c : mask.pattern().row(i / block)) {
    count += std::max<std::int64_t>(0, std::min(end, (c + 1) * block) - c * block);
  }
  return count;
}

}  // namespace

void check_attention(const OpScope& op, const AttentionArgs& args) {
  check_shapes(op, args);
  check_values(op, args);
  check_rope_on_read(op, args);
  check_ragged(op, args);
  check_pages(op, args);
  check_pattern(op, args);
  for (const auto& [name, input] : {std::pair{"q", &args.q},
                                    {"k", &args.k},
                                    {"v", &args.v},
                                    {"k_scales", &args.k_scales},
                                    {"v_scales", &args.v_scales}}) {
    op.no_overlap("out", args.out, name, *input);
    if (args.lse.defined()) op.no_overlap("lse", args.lse, name, *input);
  }
  if (args.lse.defined()) op.no_overlap("lse", args.lse, "out", args.out);
}

std::int64_t visible_pairs(const AttentionArgs& args) {
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < cpu::sequence_count(args); ++b) {
    const Sequence s = known_sequence(args, b);
    if (args.mask.kind() == Mask::Kind::full) {
      pairs += s.n_q * s.n_k;
      continue;
    }
    for (std::int64_t i = 0; i < s.n_q; ++i) {
      pairs += visible_keys(args.mask, i, i + s.shift(), s.n_k);
    }
  }
  return pairs * args.q.shape[2];
}

std::int64_t key_rows(const AttentionArgs& args) {
  std::int64_t keys = 0;
  for (std::int64_t b = 0; b < cpu::sequence_count(args); ++b) {
    keys += known_sequence(args, b).n_k;
  }
  return keys * args.k.shape[2];
}

std::string describe(const AttentionArgs& args) {
  std::string text =
      fmt::format("q {} k {} {}", to_string(args.q), to_string(args.k), args.mask.to_string());
  if (args.q_offsets.defined()) text += fmt::format(" ragged({})", cpu::sequence_count(args));
  if (args.pages.defined()) text += args.pages.holes.defined() ? " paged, with holes" : " paged";
  if (args.rope_on_read.defined()) text += " rope_on_read";
  if (args.softcap > 0) text += " softcap";
  if (args.dropout.p > 0) text += " dropout";
  return text;
}

}  // namespace tessera
