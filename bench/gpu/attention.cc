// attention() over whole sequences, against the arithmetic rate: 16k tokens in all, as many heads
// as a model of some width has.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention_inputs.h"
#include "commands.h"
#include "core/fail.h"
#include "forced_kernel.h"
#include "options.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct PrefillOptions {
  std::vector<std::int64_t> lengths{512, 1024, 2048, 4096, 8192, 16384};
  std::vector<std::int64_t> dims{64, 80, 128, 256};
  std::vector<std::string> masks{"full", "causal", "window"};
  std::vector<std::string> dtypes{"bf16"};
  std::vector<std::int64_t> widths{2048};
  std::int64_t tokens = 16384, least_heads = 1, kv_group = 1, window = 1024;
  std::string kernel{};
  bool turns = false;
};

// ---- masks --------------------------------------------------------------------------------------

// The numbers after the colons of "strided:1:16".
std::vector<std::int64_t> parameters(const std::string& text, std::size_t count) {
  std::vector<std::int64_t> found;
  for (std::size_t at = text.find(':'); at != std::string::npos;) {
    const std::size_t next = text.find(':', at + 1);
    found.push_back(parse_size(text.substr(at + 1, next - at - 1)));
    at = next;
  }
  if (found.size() != count) {
    fail(ErrorCode::invalid_argument, "the mask {} has {} parameters; it takes {}", text,
         found.size(), count);
  }
  return found;
}

// Patterns are of tiles of 128 x 128. causal-local:3 is local:3 with keys up to the query's own.
Mask parse_mask(const std::string& text, std::int64_t length, std::int64_t window) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t blocks = (length + kBlock - 1) / kBlock;
  const std::string causal_prefix = "causal-";
  const bool causal = text.starts_with(causal_prefix);
  const std::string pattern = text.substr(causal ? causal_prefix.size() : 0);
  const std::string name = pattern.substr(0, pattern.find(':'));
  const auto numbers = [&](std::size_t count) { return parameters(text, count); };
  if (text == "full") return Mask::full();
  if (text == "causal") return Mask::causal();
  if (text == "window") return Mask::window(window - 1, 0);
  if (name == "local") {
    return Mask::blocks(BlockMask::local(kBlock, blocks, blocks, numbers(1)[0]), causal);
  }
  if (name == "random") {
    const std::int64_t per_row = std::min(blocks, numbers(1)[0]);
    return Mask::blocks(BlockMask::random(kBlock, blocks, blocks, per_row, 1), causal);
  }
  if (name == "strided") {
    const std::vector<std::int64_t> both = numbers(2);
    return Mask::blocks(BlockMask::strided(kBlock, blocks, blocks, both[0], both[1]), causal);
  }
  fail(ErrorCode::invalid_argument,
       "there is no mask {}; full, causal, window, local:RADIUS, random:PER_ROW and "
       "strided:RADIUS:STRIDE are accepted, the last three also with causal- before them",
       text);
}

// The key tiles that each row of tiles sees, so that peers can be given the same pattern. There are
// as many queries as keys.
void add_pattern(Row& row, const Mask& mask) {
  const BlockMask& pattern = mask.pattern();
  const bool causal = mask.right() == 0;
  std::size_t visited = 0;
  row["causal"] = causal;
  row["pattern"] = Row::array();
  for (std::int64_t r = 0; r < pattern.q_blocks(); ++r) {
    const auto all = pattern.row(r);
    const auto end = causal ? std::upper_bound(all.begin(), all.end(), r) : all.end();
    const std::vector<std::int32_t> seen(all.begin(), end);
    visited += seen.size();
    row["pattern"].push_back(seen);
  }
  row["tiles"] = rounded(
      static_cast<double>(visited) / static_cast<double>(pattern.q_blocks() * pattern.k_blocks()),
      4);
}

// ---- one cell -----------------------------------------------------------------------------------

// Takes turns with another program. A line "go" on the standard input asks for some replays, "next"
// for the next cell. The clock of a GPU drifts as it gets warm; in turns, both programs see the
// same drift.
void take_turns(Context& ctx, int calls, const std::function<void(int)>& call) {
  constexpr int kTimes = 2;
  Replay replay(ctx, calls, call);
  for (std::string line; std::getline(std::cin, line) && line != "next";) {
    if (line != "go") {
      fail(ErrorCode::invalid_argument, "'{}' was read where go or next is expected", line);
    }
    replay();  // the clock drops while others work on the host
    Row times = Row::array();
    for (int i = 0; i < kTimes; ++i) times.push_back(rounded(replay(), 3));
    print(Row{{"us", times}});
  }
}

struct Cell {
  AttentionShape shape;
  std::string mask_name, kernel;
  Mask mask;
};

void run_cell(Context& ctx, const Noise& noise, const Ceilings& ceilings, const Cell& cell,
              bool turns) {
  // Keys and values of one sequence are read many times: two sets are enough.
  constexpr int kSets = 2;
  std::vector<AttentionTensors> sets;
  for (std::uint32_t i = 0; i < kSets; ++i) sets.push_back(make_tensors(noise, cell.shape, i));
  const auto call = [&](int i) {
    const ForcedKernel forced(ctx, cell.kernel.c_str());
    attention(ctx, args_of(sets[static_cast<std::size_t>(i)], cell.shape, cell.mask));
  };
  const TracedCall traced = trace_call(ctx, [&] { call(0); });
  Row row = row_of("attention", cell.shape, cell.mask_name);
  row["flops"] = traced.flops;
  row["floor"] = rounded(ceilings.floor_us(traced.bytes, traced.flops), 3);
  row["rel"] = rounded(error_of(ctx, args_of(sets[0], cell.shape, cell.mask)), 6);
  row["kernel"] = traced.kernel;
  if (cell.mask.kind() == Mask::Kind::blocks) add_pattern(row, cell.mask);
  if (turns) {
    print(row);
    return take_turns(ctx, kSets, call);
  }
  const Time time = time_calls(ctx, kSets, call);
  add_time(row, time);
  row["tflop_per_s"] = rounded(static_cast<double>(traced.flops) / time.us * 1e-6, 1);
  print(row);
}

// ---- all cells ----------------------------------------------------------------------------------

// "full@cuda.mma" asks for a kernel; otherwise --kernel does.
Cell make_cell(const PrefillOptions& options, const AttentionShape& shape,
               const std::string& mask) {
  const std::size_t at = std::min(mask.find('@'), mask.size());
  return {.shape = shape,
          .mask_name = mask,
          .kernel = at < mask.size() ? mask.substr(at + 1) : options.kernel,
          .mask = parse_mask(mask.substr(0, at), shape.keys, options.window)};
}

std::vector<Cell> cells(const PrefillOptions& options) {
  std::vector<Cell> all;
  for (const std::string& dtype : options.dtypes) {
    for (const std::int64_t dim : options.dims) {
      for (const std::int64_t width : options.widths) {
        const std::int64_t heads = std::max<std::int64_t>(1, width / dim);
        if (heads < options.least_heads) continue;
        for (const std::int64_t length : options.lengths) {
          const AttentionShape shape{.batch = std::max<std::int64_t>(1, options.tokens / length),
                                     .queries = length,
                                     .keys = length,
                                     .heads = heads / options.kv_group * options.kv_group,
                                     .kv_heads = heads / options.kv_group,
                                     .dim = dim,
                                     .dtype = parse_dtype(dtype)};
          for (const std::string& mask : options.masks) {
            all.push_back(make_cell(options, shape, mask));
          }
        }
      }
    }
  }
  return all;
}

void run_prefills(const PrefillOptions& options) {
  const std::vector<Cell> all = cells(options);
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 1.f);
  const Ceilings ceilings = measure_ceilings(ctx);
  print(ceilings);
  for (const Cell& cell : all) run_cell(ctx, noise, ceilings, cell, options.turns);
}

}  // namespace

void add_attention(CLI::App& app) {
  const auto options = std::make_shared<PrefillOptions>();
  CLI::App* command = app.add_subcommand("attention", "attention() over whole sequences");
  command->add_option("--seq", options->lengths, "Tokens of a sequence")->delimiter(',');
  command->add_option("--dims", options->dims, "Dims of a head")->delimiter(',');
  command
      ->add_option("--masks", options->masks,
                   "full, causal, window, local:RADIUS, random:PER_ROW, strided:RADIUS:STRIDE (of "
                   "tiles of 128), causal-local:RADIUS, ...; with @cuda.mma, ...: by that kernel")
      ->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command->add_option("--tokens", options->tokens, "Tokens of all sequences together");
  command->add_option("--width", options->widths, "Width of all heads together")->delimiter(',');
  command->add_option("--least-heads", options->least_heads,
                      "For each dim, leave out widths that have fewer heads than this");
  command->add_option("--group", options->kv_group, "Heads that share keys and values");
  command->add_option("--kernel", options->kernel,
                      "cuda.mma, ...; without it, attention() chooses");
  command->add_option("--window", options->window, "Keys a query sees under the mask window");
  command->add_flag(
      "--turns", options->turns,
      "Time on request: after each row, read lines go (replay, print times) and next");
  command->callback([options] { run_prefills(*options); });
}

}  // namespace tessera::bench
