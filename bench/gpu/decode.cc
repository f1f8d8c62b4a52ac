// attention() of one query a sequence, or of some of its last ones, against memory bandwidth.
#include <memory>
#include <string>
#include <vector>

#include "attention_inputs.h"
#include "commands.h"
#include "forced_kernel.h"
#include "options.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct DecodeOptions {
  std::vector<std::int64_t> batches{1, 8, 64}, contexts{512, 4096, 16384}, dims{64, 128};
  std::vector<std::int64_t> groups{1, 4};
  std::vector<std::string> dtypes{"bf16"};
  std::int64_t kv_heads = 8, queries = 1, page = 0;
  std::string kernel{};
};

// The same keys and values, read through a page table that scatters them: neighbouring pages of a
// sequence lie far apart, and no page is used twice.
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
                const AttentionShape& shape, std::int64_t page, const std::string& kernel) {
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
  const auto call = [&](int i) {
    const ForcedKernel forced(ctx, kernel.c_str());
    attention(ctx, args(i));
  };
  const TracedCall traced = trace_call(ctx, [&] { call(0); });
  const Time time = time_calls(ctx, static_cast<int>(sets.size()), call);
  Row row = row_of("decode", shape, "causal");
  row["queries"] = shape.queries;
  row["page"] = page;
  add_time(row, time);
  row["bytes"] = kv_bytes;
  row["tflop_per_s"] = rounded(static_cast<double>(traced.flops) / time.us * 1e-6, 1);
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
                        .queries = options.queries,
                        .keys = keys,
                        .heads = options.kv_heads * group,
                        .kv_heads = options.kv_heads,
                        .dim = dim,
                        .dtype = parse_dtype(dtype)},
                       options.page, options.kernel);
          }
        }
      }
    }
  }
}

}  // namespace

void add_decode(CLI::App& app) {
  const auto options = std::make_shared<DecodeOptions>();
  CLI::App* command = app.add_subcommand("decode", "attention() of one query a sequence");
  command->add_option("--batch", options->batches, "Sequences")->delimiter(',');
  command->add_option("--context", options->contexts, "Keys of each")->delimiter(',');
  command->add_option("--queries", options->queries,
                      "Queries of each, its last ones; many: a chunk of a prompt");
  command->add_option("--dims", options->dims, "Of a head")->delimiter(',');
  command->add_option("--groups", options->groups, "Heads that share keys and values")
      ->delimiter(',');
  command->add_option("--kv-heads", options->kv_heads, "Heads of keys and values");
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command->add_option("--kernel", options->kernel, "cuda.split, ...; not given: its own choice");
  command->add_option("--page", options->page, "Tokens of a page; 0: no page table");
  command->callback([options] { run_decodes(*options); });
}

}  // namespace tessera::bench
