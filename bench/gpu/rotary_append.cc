// rotary_append(), and the calls it replaces: rotary() of queries and keys, then kv_append().
#include "tessera/rotary_append.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "commands.h"
#include "noise.h"
#include "options.h"
#include "row.h"
#include "tessera/kv_append.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct RotaryAppendOptions {
  std::vector<std::int64_t> tokens{1, 1024};
  std::vector<std::string> dtypes{"bf16"};
};

struct Heads {
  const char* model;
  std::int64_t heads, kv_heads, dim, dims;
};
constexpr Heads kHeads[] = {{"Pythia-2.8B", 32, 32, 80, 20}, {"Llama-8B", 32, 8, 128, 128}};

template <typename T>
Buffer uploaded(Context& ctx, const std::vector<T>& values) {
  Buffer buffer(static_cast<std::int64_t>(values.size() * sizeof(T)), ctx.device());
  copy_bytes(ctx, buffer.data(), ctx.device(), values.data(), Device::cpu(), buffer.bytes());
  return buffer;
}

void run_rotary_append(Context& ctx, const Noise& noise, const Ceilings& ceilings, const Heads& h,
                       std::int64_t tokens, DType dtype) {
  constexpr std::int64_t kPageSize = 16;
  const std::int64_t pages = (tokens + kPageSize - 1) / kPageSize;
  std::vector<std::int32_t> counted(static_cast<std::size_t>(tokens));
  std::iota(counted.begin(), counted.end(), 0);
  const Buffer numbers = uploaded(ctx, counted);  // positions, and slots
  const Buffer inv_freq = uploaded(ctx, rope_inv_freq(h.dims));

  struct Set {
    Matrix qkv, k_pages, v_pages;
  };
  const std::int64_t row = (h.heads + 2 * h.kv_heads) * h.dim;
  const std::int64_t pool_row = h.kv_heads * h.dim;
  std::vector<Set> sets;
  for (int i = 0; i < copies_beyond_cache(tokens * row * size_of(dtype), 64); ++i) {
    const auto seed = static_cast<std::uint32_t>(3 * i);
    sets.push_back({noise.matrix(dtype, tokens, row, seed),
                    noise.matrix(dtype, pages * kPageSize, pool_row, seed + 1),
                    noise.matrix(dtype, pages * kPageSize, pool_row, seed + 2)});
  }
  const auto args = [&](int i) {
    const Set& set = sets[static_cast<std::size_t>(i)];
    const Tensor qkv = set.qkv.view.view({tokens, h.heads + 2 * h.kv_heads, h.dim});
    const Tensor q = qkv.slice(1, 0, h.heads);
    return RotaryAppendArgs{.q = q,
                            .k = qkv.slice(1, h.heads, h.heads + h.kv_heads),
                            .v = qkv.slice(1, h.heads + h.kv_heads, h.heads + 2 * h.kv_heads),
                            .positions = numbers.tensor(DType::i32, {tokens}),
                            .rope = {.inv_freq = inv_freq.tensor(DType::f32, {h.dims / 2})},
                            .slots = numbers.tensor(DType::i32, {tokens}),
                            .k_pages = set.k_pages.view.view({pages, kPageSize, h.kv_heads, h.dim}),
                            .v_pages = set.v_pages.view.view({pages, kPageSize, h.kv_heads, h.dim}),
                            .q_out = q};
  };
  const auto apart = [&](int i) {
    const RotaryAppendArgs a = args(i);
    const Tensor rotated = sets[static_cast<std::size_t>(i)]
                               .qkv.view.view({1, tokens, h.heads + 2 * h.kv_heads, h.dim})
                               .slice(2, 0, h.heads + h.kv_heads);
    rotary(ctx, {.x = rotated, .positions = a.positions, .rope = a.rope, .out = rotated});
    kv_append(ctx,
              {.k = a.k, .v = a.v, .slots = a.slots, .k_pages = a.k_pages, .v_pages = a.v_pages});
  };
  const int calls = static_cast<int>(sets.size());
  const TracedCall traced = trace_call(ctx, [&] { rotary_append(ctx, args(0)); });
  const Time time = time_calls(ctx, calls, [&](int i) { rotary_append(ctx, args(i)); });
  const Time replaced = time_calls(ctx, calls, apart);
  Row out{{"op", "rotary_append"}, {"model", h.model}, {"dtype", name(dtype)}, {"tokens", tokens}};
  add_time(out, time);
  out["apart_us"] = rounded(replaced.us, 3);
  out["bytes"] = traced.bytes;
  out["floor"] = rounded(ceilings.floor_us(traced.bytes), 3);
  print(out);
}

void run_rotary_append_rows(const RotaryAppendOptions& options) {
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 1.f);
  const Ceilings ceilings = measure_ceilings(ctx);
  print(ceilings);
  for (const Heads& heads : kHeads) {
    for (const std::string& dtype : options.dtypes) {
      for (const std::int64_t tokens : options.tokens) {
        run_rotary_append(ctx, noise, ceilings, heads, tokens, parse_dtype(dtype));
      }
    }
  }
}

}  // namespace

void add_rotary_append(CLI::App& app) {
  const auto options = std::make_shared<RotaryAppendOptions>();
  CLI::App* command = app.add_subcommand(
      "rotary_append", "rotary_append(), and rotary() and kv_append() separately");
  command->add_option("--tokens", options->tokens, "Tokens of a call")->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command->callback([options] { run_rotary_append_rows(*options); });
}

}  // namespace tessera::bench
