// attention() of the last query of each sequence, or of its last few, against memory bandwidth.
// Keys and values are laid out and stored as in a cache: dense or in pages, of 16 bits or of 8 with
// scales, all of them visible or only a window and sinks, rotated before or as they are read.
//
// A call with a window, sinks or rope_on_read is timed in turns with a plain one: the same query
// over as many keys, all in a row and rotated before. The difference is the cost of these options.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "attention_inputs.h"
#include "commands.h"
#include "core/cache_dtype.h"
#include "core/fail.h"
#include "forced_kernel.h"
#include "options.h"
#include "tessera/kv_append.h"
#include "tessera/rotary.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct DecodeOptions {
  std::vector<std::int64_t> batches{1, 8, 64}, contexts{512, 4096, 16384}, dims{64, 128};
  std::vector<std::int64_t> groups{1, 4}, pages{0};
  std::vector<std::string> dtypes{"bf16"}, kv_dtypes{};  // the second: like the first
  std::int64_t kv_heads = 8, queries = 1, window = 0, sinks = 0, most_bytes = 20'000'000'000;
  bool rope_on_read = false;
  std::string kernel{};
};

// One row of the output.
struct DecodeCell {
  AttentionShape shape;  // keys: as many as are stored
  DType stored;          // of keys and values
  std::int64_t page, window, sinks;
  bool rope_on_read;

  // How many keys the last query sees.
  std::int64_t visible() const {
    return window > 0 ? std::min(shape.keys, sinks + window) : shape.keys;
  }
  bool is_plain() const { return visible() == shape.keys && !rope_on_read; }
  // A cache hides the keys that have left its window in a hole. A hole is the same for all queries
  // of a sequence, so several queries have a mask instead, as without pages.
  bool has_hole() const { return page > 0 && shape.queries == 1 && visible() < shape.keys; }
  Mask mask() const {
    if (visible() == shape.keys || has_hole()) return Mask::causal();
    return sinks > 0 ? Mask::sinks(sinks, window) : Mask::window(window - 1, 0);
  }
  // The bytes of this many keys and values of every sequence.
  std::int64_t bytes(std::int64_t keys) const {
    const std::int64_t scale = has_scales(stored) ? size_of(DType::f32) : 0;
    return 2 * shape.batch * keys * shape.kv_heads * (shape.dim * size_of(stored) + scale);
  }
};

// ---- what a call reads --------------------------------------------------------------------------

template <typename T>
Buffer on_device(Context& ctx, DType dtype, const std::vector<T>& values) {
  Buffer made(dtype, {static_cast<std::int64_t>(values.size())}, ctx.device());
  copy_bytes(ctx, made.data(), made.device(), values.data(), Device::cpu(), made.bytes());
  return made;
}

// The same number for every sequence.
Buffer for_each_sequence(Context& ctx, const DecodeCell& cell, std::int64_t number) {
  return on_device(ctx, DType::i32,
                   std::vector<std::int32_t>(static_cast<std::size_t>(cell.shape.batch),
                                             static_cast<std::int32_t>(number)));
}

// A page table that scatters the keys: neighbouring pages of a sequence lie far apart, and no page
// is used twice.
class ScatteredPages {
 public:
  ScatteredPages(Context& ctx, const DecodeCell& cell) : cell_(cell) {
    const std::int64_t pages = cell.shape.batch * per_sequence();
    std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
    const std::int64_t step = 7919;  // a prime that divides no number of pages used here
    for (std::size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * step % pages);
    }
    std::vector<std::int32_t> holes;
    for (std::int64_t i = 0; i < cell.shape.batch; ++i) {
      holes.push_back(static_cast<std::int32_t>(cell.sinks));
      holes.push_back(static_cast<std::int32_t>(cell.shape.keys - cell.visible()));
    }
    table_ = on_device(ctx, DType::i32, table);
    holes_ = on_device(ctx, DType::i32, holes);
    stored_ = for_each_sequence(ctx, cell, cell.shape.keys);
    visible_ = for_each_sequence(ctx, cell, cell.visible());
  }

  PageTable view() const {
    const std::int64_t batch = cell_.shape.batch;
    PageTable made{.table = table(), .lengths = lengths(cell_.has_hole() ? visible_ : stored_)};
    if (cell_.has_hole()) made.holes = holes_.tensor(DType::i32, {batch, 2});
    return made;
  }
  // A table of as many keys, in the first pages.
  PageTable plain() const {
    const std::int64_t needed = (cell_.visible() + cell_.page - 1) / cell_.page;
    return {.table = table().slice(1, 0, needed), .lengths = lengths(visible_)};
  }

 private:
  std::int64_t per_sequence() const { return cell_.shape.keys / cell_.page; }
  Tensor table() const { return table_.tensor(DType::i32, {cell_.shape.batch, per_sequence()}); }
  Tensor lengths(const Buffer& numbers) const {
    return numbers.tensor(DType::i32, {cell_.shape.batch});
  }

  DecodeCell cell_;
  Buffer table_{}, holes_{}, stored_{}, visible_{};
};

// Queries, keys and values. Of 8 bits, codes and scales as kv_append() writes them.
class DecodeTensors {
 public:
  DecodeTensors(Context& ctx, const Noise& noise, const DecodeCell& cell, std::uint32_t seed)
      : cell_(cell), tensors_(make_tensors(noise, cell.shape, seed)) {
    if (!has_scales(cell.stored)) return;
    const AttentionShape& s = cell.shape;
    const std::int64_t rows = s.batch * s.keys;
    for (int i = 0; i < 2; ++i) {
      codes_[i] = Buffer(cell.stored, {rows, s.kv_heads, s.dim}, ctx.device());
      scales_[i] = Buffer(DType::f32, {rows, s.kv_heads}, ctx.device());
    }
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(rows));
    std::iota(numbers.begin(), numbers.end(), 0);
    const Buffer slots = on_device(ctx, DType::i32, numbers);
    kv_append(ctx, {.k = tensors_.k.view.view({rows, s.kv_heads, s.dim}),
                    .v = tensors_.v.view.view({rows, s.kv_heads, s.dim}),
                    .slots = slots.tensor(),
                    .k_pages = codes(0),
                    .v_pages = codes(1),
                    .k_scales = scales(0),
                    .v_scales = scales(1)});
    ctx.synchronize();  // memory that is no longer needed is freed here
    tensors_.k = {};
    tensors_.v = {};
  }

  // The arguments without the options that hide keys.
  AttentionArgs args() const {
    const AttentionShape& s = cell_.shape;
    AttentionArgs made{.q = tensors_.q.view.view({s.batch, s.queries, s.heads, s.dim}),
                       .out = tensors_.out.view.view({s.batch, s.queries, s.heads, s.dim}),
                       .mask = Mask::causal()};
    if (has_scales(cell_.stored)) {
      made.k = codes(0);
      made.v = codes(1);
      made.k_scales = scales(0);
      made.v_scales = scales(1);
    } else {
      made.k = tensors_.k.view.view({blocks(), block(), s.kv_heads, s.dim});
      made.v = tensors_.v.view.view({blocks(), block(), s.kv_heads, s.dim});
    }
    return made;
  }

 private:
  // Memory without pages has the layout of pages that hold a whole sequence each.
  std::int64_t block() const { return cell_.page > 0 ? cell_.page : cell_.shape.keys; }
  std::int64_t blocks() const { return cell_.shape.batch * cell_.shape.keys / block(); }
  Tensor codes(int i) const {
    return codes_[i].tensor(cell_.stored,
                            {blocks(), block(), cell_.shape.kv_heads, cell_.shape.dim});
  }
  Tensor scales(int i) const {
    return scales_[i].tensor(DType::f32, {blocks(), cell_.shape.kv_heads, block()});
  }

  DecodeCell cell_;
  AttentionTensors tensors_;
  Buffer codes_[2]{}, scales_[2]{};  // of keys and of values
};

// ---- one cell -----------------------------------------------------------------------------------

class DecodeCalls {
 public:
  DecodeCalls(Context& ctx, const Noise& noise, const DecodeCell& cell)
      : cell_(cell), inv_freq_(on_device(ctx, DType::f32, rope_inv_freq(cell.shape.dim))) {
    if (cell.page > 0) pages_.emplace(ctx, cell);
    // Enough copies that the bytes read exceed the cache, unless all copies would exceed the
    // memory.
    constexpr std::int64_t kMost = 40'000'000'000;
    const auto room = std::max<std::int64_t>(2, kMost / cell.bytes(cell.shape.keys));
    const auto copies =
        std::min<std::int64_t>(room, copies_beyond_cache(cell.bytes(cell.visible()), /*most=*/64));
    for (std::int64_t i = 0; i < copies; ++i) {
      sets_.emplace_back(ctx, noise, cell, static_cast<std::uint32_t>(i));
    }
  }

  int count() const { return static_cast<int>(sets_.size()); }

  AttentionArgs args(int i) const {
    AttentionArgs made = sets_[static_cast<std::size_t>(i)].args();
    made.mask = cell_.mask();
    if (pages_) made.pages = pages_->view();
    if (cell_.rope_on_read) {
      made.rope_on_read = {.inv_freq = inv_freq_.tensor(DType::f32, {cell_.shape.dim / 2})};
    }
    return made;
  }
  AttentionArgs plain_args(int i) const {
    AttentionArgs made = sets_[static_cast<std::size_t>(i)].args();
    if (pages_) {
      made.pages = pages_->plain();
      return made;
    }
    made.k = made.k.slice(1, 0, cell_.visible());
    made.v = made.v.slice(1, 0, cell_.visible());
    if (has_scales(cell_.stored)) {
      made.k_scales = made.k_scales.slice(2, 0, cell_.visible());
      made.v_scales = made.v_scales.slice(2, 0, cell_.visible());
    }
    return made;
  }

 private:
  DecodeCell cell_;
  Buffer inv_freq_;
  std::optional<ScatteredPages> pages_{};
  std::vector<DecodeTensors> sets_{};
};

void run_decode(Context& ctx, const Noise& noise, const Ceilings& ceilings, const DecodeCell& cell,
                const std::string& kernel) {
  const DecodeCalls calls(ctx, noise, cell);
  const auto attend = [&](const AttentionArgs& args) {
    const ForcedKernel forced(ctx, kernel.c_str());
    attention(ctx, args);
  };
  const auto call = [&](int i) { attend(calls.args(i)); };
  const TracedCall traced = trace_call(ctx, [&] { call(0); });
  const double error = error_of(ctx, calls.args(0));
  const std::int64_t bytes = cell.bytes(cell.visible());
  Row row = row_of("decode", cell.shape, cell.mask().to_string());
  row["queries"] = cell.shape.queries;
  row["page"] = cell.page;
  row["kv_dtype"] = kv_dtype_name(cell.stored);
  row["window"] = cell.window;
  row["sinks"] = cell.sinks;
  row["rope_on_read"] = cell.rope_on_read;
  row["visible"] = cell.visible();
  Time time;
  if (cell.is_plain()) {
    time = time_calls(ctx, calls.count(), call);
    add_time(row, time);
  } else {
    Time plain;
    std::tie(time, plain) =
        time_in_turns(ctx, calls.count(), call, [&](int i) { attend(calls.plain_args(i)); });
    add_time(row, time);
    row["plain_us"] = rounded(plain.us, 3);
    row["over_plain"] = rounded(time.us / plain.us - 1, 4);
  }
  row["bytes"] = bytes;
  row["tflop_per_s"] = rounded(static_cast<double>(traced.flops) / time.us * 1e-6, 1);
  row["tb_per_s"] = rounded(static_cast<double>(bytes) / time.us * 1e-6, 3);
  row["floor"] = rounded(ceilings.floor_us(bytes), 3);
  row["rel"] = rounded(error, 6);
  row["kernel"] = traced.kernel;
  print(row);
}

// ---- all cells ----------------------------------------------------------------------------------

void check_options(const DecodeOptions& options) {
  if (options.sinks > 0 && options.window == 0) {
    fail(ErrorCode::invalid_argument,
         "--sinks {} was given without --window: without one, every key is seen anyway",
         options.sinks);
  }
  for (const std::int64_t page : options.pages) {
    for (const std::int64_t keys : options.contexts) {
      if (page > 0 && keys % page != 0) {
        fail(ErrorCode::invalid_argument,
             "--context {} is not a multiple of --page {}; whole pages are measured", keys, page);
      }
    }
  }
}

std::vector<DecodeCell> decode_cells(const DecodeOptions& options) {
  std::vector<DecodeCell> all;
  for (const std::string& dtype : options.dtypes) {
    for (const std::int64_t dim : options.dims) {
      for (const std::int64_t group : options.groups) {
        for (const std::int64_t batch : options.batches) {
          for (const std::int64_t keys : options.contexts) {
            const AttentionShape shape{.batch = batch,
                                       .queries = options.queries,
                                       .keys = keys,
                                       .heads = options.kv_heads * group,
                                       .kv_heads = options.kv_heads,
                                       .dim = dim,
                                       .dtype = parse_dtype(dtype)};
            // Cells that differ only in how keys are stored come together, for comparison.
            for (const std::string& stored :
                 options.kv_dtypes.empty() ? std::vector{dtype} : options.kv_dtypes) {
              for (const std::int64_t page : options.pages) {
                all.push_back({.shape = shape,
                               .stored = parse_kv_dtype(stored),
                               .page = page,
                               .window = options.window,
                               .sinks = options.sinks,
                               .rope_on_read = options.rope_on_read});
              }
            }
          }
        }
      }
    }
  }
  std::erase_if(all, [&](const DecodeCell& cell) {
    return cell.bytes(cell.shape.keys) > options.most_bytes;
  });
  return all;
}

void run_decodes(const DecodeOptions& options) {
  check_options(options);
  const std::vector<DecodeCell> all = decode_cells(options);
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 1.f);
  const Ceilings ceilings = measure_ceilings(ctx);
  print(ceilings);
  for (const DecodeCell& cell : all) run_decode(ctx, noise, ceilings, cell, options.kernel);
}

}  // namespace

void add_decode(CLI::App& app) {
  const auto options = std::make_shared<DecodeOptions>();
  CLI::App* command = app.add_subcommand("decode", "attention() of one query for each sequence");
  command->add_option("--batch", options->batches, "Sequences")->delimiter(',');
  command->add_option("--context", options->contexts, "Stored keys of each sequence")
      ->delimiter(',');
  command->add_option("--queries", options->queries,
                      "Queries of each sequence, the last ones; many: a chunk of a prompt");
  command->add_option("--dims", options->dims, "Dims of a head")->delimiter(',');
  command->add_option("--groups", options->groups, "Heads that share keys and values")
      ->delimiter(',');
  command->add_option("--kv-heads", options->kv_heads, "Heads of keys and values");
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command
      ->add_option("--kv-dtype", options->kv_dtypes,
                   "How keys and values are stored: int8, fp8, or as --dtypes, the default")
      ->delimiter(',');
  command->add_option("--kernel", options->kernel,
                      "cuda.split, ...; without it, attention() chooses");
  command->add_option("--page", options->pages, "Tokens of a page; 0: no page table")
      ->delimiter(',');
  command
      ->add_option(
          "--window", options->window,
          "See the last N keys only: by a hole in the pages, as in a cache, or by a mask if "
          "there are no pages or several queries. Timed in turns with a plain call over as "
          "many keys (plain_us, over_plain)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--sinks", options->sinks, "With --window: see the first N keys too")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--rope-on-read", options->rope_on_read,
                    "Rotate keys as they are read; timed beside a plain call, as with --window");
  command->add_option("--most-bytes", options->most_bytes,
                      "Leave out cells with more bytes of keys and values");
  command->callback([options] { run_decodes(*options); });
}

}  // namespace tessera::bench
