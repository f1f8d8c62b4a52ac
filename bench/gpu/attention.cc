// attention(): prefill against the arithmetic rate (16k tokens, as many heads as a model of width
// 2048 has), and one query a sequence against memory bandwidth.
#include "tessera/attention.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "core/fail.h"
#include "cuda/attention_choose.h"
#include "noise.h"
#include "options.h"
#include "row.h"
#include "timer.h"

namespace tessera::bench {
namespace {

// A [rows, cols] matrix as [batch, tokens, heads, dim].
Tensor as_heads(const Matrix& matrix, std::int64_t batch, std::int64_t heads, std::int64_t dim) {
  return matrix.view.view({batch, matrix.view.shape[0] / batch, heads, dim});
}

struct AttentionTensors {
  Matrix q, k, v, out;
};

struct AttentionShape {
  std::int64_t batch, queries, keys, heads, kv_heads, dim;
  DType dtype;
};

AttentionTensors make_tensors(const Noise& noise, const AttentionShape& s, std::uint32_t seed) {
  const auto make = [&](std::int64_t tokens, std::int64_t heads, std::uint32_t n) {
    return noise.matrix(s.dtype, s.batch * tokens, heads * s.dim, 4 * seed + n);
  };
  return {.q = make(s.queries, s.heads, 0),
          .k = make(s.keys, s.kv_heads, 1),
          .v = make(s.keys, s.kv_heads, 2),
          .out = make(s.queries, s.heads, 3)};
}

AttentionArgs args_of(const AttentionTensors& t, const AttentionShape& s, const Mask& mask) {
  return {.q = as_heads(t.q, s.batch, s.heads, s.dim),
          .k = as_heads(t.k, s.batch, s.kv_heads, s.dim),
          .v = as_heads(t.v, s.batch, s.kv_heads, s.dim),
          .out = as_heads(t.out, s.batch, s.heads, s.dim),
          .mask = mask};
}

// Of the last head of the last sequence, against the same in f32.
double error_of(Context& ctx, const AttentionArgs& args) {
  const auto last_head = [&](const Tensor& x) {
    return in_f32(ctx, x.select(0, x.shape[0] - 1).select(1, x.shape[2] - 1));
  };
  const auto as_attention = [](const Matrix& x) {
    return x.view.view({1, x.view.shape[0], 1, x.view.shape[1]});
  };
  const Matrix q = last_head(args.q), k = last_head(args.k), v = last_head(args.v);
  const Matrix found = last_head(args.out), expected = last_head(args.out);
  attention(ctx, {.q = as_attention(q),
                  .k = as_attention(k),
                  .v = as_attention(v),
                  .out = as_attention(expected),
                  .mask = args.mask});
  return relative_error(ctx, found.view, expected.view);
}

Row row_of(const char* op, const AttentionShape& s, const std::string& mask) {
  return {{"op", op},         {"mask", mask},          {"dtype", name(s.dtype)},
          {"batch", s.batch}, {"S", s.keys},           {"heads", s.heads},
          {"D", s.dim},       {"kv_heads", s.kv_heads}};
}

// ---- prefill ------------------------------------------------------------------------------------

struct PrefillOptions {
  std::vector<std::int64_t> lengths{512, 1024, 2048, 4096, 8192, 16384};
  std::vector<std::int64_t> dims{64, 80, 128, 256};
  std::vector<std::string> masks{"full", "causal", "window"};
  std::vector<std::string> dtypes{"bf16"};
  std::int64_t tokens = 16384, width = 2048, kv_group = 1, window = 1024;
  std::string kernel{};
};

// blocks10: tiles of 128 x 128, a tenth of them: the own one and others at random.
Mask parse_mask(const std::string& text, std::int64_t length, std::int64_t window) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t blocks = (length + kBlock - 1) / kBlock;
  if (text == "full") return Mask::full();
  if (text == "causal") return Mask::causal();
  if (text == "window") return Mask::window(window - 1, 0);
  if (text == "blocks10") {
    const std::int64_t per_row = std::max<std::int64_t>(1, (blocks + 5) / 10);
    return Mask::blocks(BlockMask::random(kBlock, blocks, blocks, per_row, 1));
  }
  fail(ErrorCode::invalid_argument,
       "there is no mask {}; full, causal, window and blocks10 are accepted", text);
}

void run_prefill(Context& ctx, const Noise& noise, const Ceilings& ceilings,
                 const AttentionShape& shape, const std::string& mask_name, const Mask& mask,
                 const std::string& kernel) {
  // Keys and values of one sequence are read over and over: two sets are enough.
  std::vector<AttentionTensors> sets;
  for (std::uint32_t i = 0; i < 2; ++i) sets.push_back(make_tensors(noise, shape, i));
  const auto call = [&](int i) {
    attention(ctx, args_of(sets[static_cast<std::size_t>(i) % 2], shape, mask));
  };
  cuda::force_attention_kernel(ctx, kernel.c_str());
  const TracedCall traced = trace_call(ctx, [&] { call(0); });
  cuda::force_attention_kernel(ctx, "");
  const double error = error_of(ctx, args_of(sets[0], shape, mask));
  cuda::force_attention_kernel(ctx, kernel.c_str());
  const Time time = time_calls(ctx, 2, call);
  cuda::force_attention_kernel(ctx, "");
  Row row = row_of("attention", shape, mask_name);
  add_time(row, time);
  row["flops"] = traced.flops;
  row["tflop_per_s"] = rounded(static_cast<double>(traced.flops) / time.us * 1e-6, 1);
  row["floor"] = rounded(ceilings.floor_us(traced.bytes, traced.flops), 3);
  row["rel"] = rounded(error, 6);
  row["kernel"] = traced.kernel;
  print(row);
}

void run_prefills(const PrefillOptions& options) {
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 1.f);
  const Ceilings ceilings = measure_ceilings(ctx);
  print(ceilings);
  for (const std::string& dtype : options.dtypes) {
    for (const std::int64_t dim : options.dims) {
      for (const std::int64_t length : options.lengths) {
        const std::int64_t heads = std::max<std::int64_t>(1, options.width / dim);
        const AttentionShape shape{.batch = std::max<std::int64_t>(1, options.tokens / length),
                                   .queries = length,
                                   .keys = length,
                                   .heads = heads / options.kv_group * options.kv_group,
                                   .kv_heads = heads / options.kv_group,
                                   .dim = dim,
                                   .dtype = parse_dtype(dtype)};
        for (const std::string& mask : options.masks) {
          run_prefill(ctx, noise, ceilings, shape, mask, parse_mask(mask, length, options.window),
                      options.kernel);
        }
      }
    }
  }
}

// ---- decode -------------------------------------------------------------------------------------

struct DecodeOptions {
  std::vector<std::int64_t> batches{1, 8, 64}, contexts{512, 4096, 16384}, dims{64, 128};
  std::vector<std::int64_t> groups{1, 4};
  std::vector<std::string> dtypes{"bf16"};
  std::int64_t kv_heads = 8, page = 0;
};

// The same keys and values, read through a page table: every sequence has its pages in the order
// of another's neighbours, none twice.
struct Pages {
  Buffer table{}, lengths{};
  PageTable view{};
};

Pages make_pages(Context& ctx, const AttentionShape& shape, std::int64_t page) {
  const std::int64_t per_sequence = shape.keys / page, pages = shape.batch * per_sequence;
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
  const std::int64_t step = 7919;  // a prime that divides no number of pages used here
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * step % pages);
  }
  const std::vector<std::int32_t> lengths(static_cast<std::size_t>(shape.batch),
                                          static_cast<std::int32_t>(shape.keys));
  Pages made{.table = Buffer(DType::i32, {pages}, ctx.device()),
             .lengths = Buffer(DType::i32, {shape.batch}, ctx.device())};
  copy_bytes(ctx, made.table.data(), ctx.device(), table.data(), Device::cpu(), made.table.bytes());
  copy_bytes(ctx, made.lengths.data(), ctx.device(), lengths.data(), Device::cpu(),
             made.lengths.bytes());
  made.view = {.table = made.table.tensor(DType::i32, {shape.batch, per_sequence}),
               .lengths = made.lengths.tensor(DType::i32, {shape.batch})};
  return made;
}

void run_decode(Context& ctx, const Noise& noise, const Ceilings& ceilings,
                const AttentionShape& shape, std::int64_t page) {
  const std::int64_t kv_bytes =
      2 * shape.batch * shape.keys * shape.kv_heads * shape.dim * size_of(shape.dtype);
  std::vector<AttentionTensors> sets;
  for (int i = 0; i < copies_beyond_cache(kv_bytes, 64); ++i) {
    sets.push_back(make_tensors(noise, shape, static_cast<std::uint32_t>(i)));
  }
  const Pages pages = page > 0 ? make_pages(ctx, shape, page) : Pages();
  const auto args = [&](int i) {
    const AttentionTensors& set = sets[static_cast<std::size_t>(i)];
    AttentionArgs made = args_of(set, shape, Mask::causal());
    if (page > 0) {
      const std::int64_t count = shape.batch * shape.keys / page;
      made.k = set.k.view.view({count, page, shape.kv_heads, shape.dim});
      made.v = set.v.view.view({count, page, shape.kv_heads, shape.dim});
      made.pages = pages.view;
    }
    return made;
  };
  const TracedCall traced = trace_call(ctx, [&] { attention(ctx, args(0)); });
  const Time time =
      time_calls(ctx, static_cast<int>(sets.size()), [&](int i) { attention(ctx, args(i)); });
  Row row = row_of("decode", shape, "causal");
  row["page"] = page;
  add_time(row, time);
  row["bytes"] = kv_bytes;
  row["tb_per_s"] = rounded(static_cast<double>(kv_bytes) / time.us * 1e-6, 3);
  row["floor"] = rounded(ceilings.floor_us(kv_bytes), 3);
  if (page == 0) row["rel"] = rounded(error_of(ctx, args(0)), 6);
  row["kernel"] = traced.kernel;
  print(row);
}

void run_decodes(const DecodeOptions& options) {
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 1.f);
  const Ceilings ceilings = measure_ceilings(ctx);
  print(ceilings);
  for (const std::string& dtype : options.dtypes) {
    for (const std::int64_t dim : options.dims) {
      for (const std::int64_t group : options.groups) {
        for (const std::int64_t batch : options.batches) {
          for (const std::int64_t keys : options.contexts) {
            run_decode(ctx, noise, ceilings,
                       {.batch = batch,
                        .queries = 1,
                        .keys = keys,
                        .heads = options.kv_heads * group,
                        .kv_heads = options.kv_heads,
                        .dim = dim,
                        .dtype = parse_dtype(dtype)},
                       options.page);
          }
        }
      }
    }
  }
}

}  // namespace

void add_attention(CLI::App& app) {
  const auto options = std::make_shared<PrefillOptions>();
  CLI::App* command = app.add_subcommand("attention", "attention() over whole sequences");
  command->add_option("--seq", options->lengths, "Tokens of a sequence")->delimiter(',');
  command->add_option("--dims", options->dims, "Of a head")->delimiter(',');
  command->add_option("--masks", options->masks, "full, causal, window, blocks10")->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command->add_option("--tokens", options->tokens, "Of all sequences together");
  command->add_option("--width", options->width, "Of all heads together");
  command->add_option("--group", options->kv_group, "Heads that share keys and values");
  command->add_option("--kernel", options->kernel, "cuda.mma, ...; not given: its own choice");
  command->add_option("--window", options->window, "Keys a query sees under the mask window");
  command->callback([options] { run_prefills(*options); });
}

void add_decode(CLI::App& app) {
  const auto options = std::make_shared<DecodeOptions>();
  CLI::App* command = app.add_subcommand("decode", "attention() of one query a sequence");
  command->add_option("--batch", options->batches, "Sequences")->delimiter(',');
  command->add_option("--context", options->contexts, "Keys of each")->delimiter(',');
  command->add_option("--dims", options->dims, "Of a head")->delimiter(',');
  command->add_option("--groups", options->groups, "Heads that share keys and values")
      ->delimiter(',');
  command->add_option("--kv-heads", options->kv_heads, "Heads of keys and values");
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command->add_option("--page", options->page, "Tokens of a page; 0: no page table");
  command->callback([options] { run_decodes(*options); });
}

}  // namespace tessera::bench
