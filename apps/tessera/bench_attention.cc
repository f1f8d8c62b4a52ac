// attention() with the heads of two models: a prompt, and one token with all keys before it.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench_suites.h"
#include "tessera/attention.h"

namespace tessera::app {
namespace {

struct Heads {
  const char* name;
  std::int64_t heads, kv_heads, dim;
};
constexpr Heads kBenchHeads[] = {{"pythia-160m", 12, 12, 64}, {"llama-8b", 32, 8, 128}};

void bench_call(const SuiteArgs& args, const Heads& heads, std::int64_t queries,
                std::int64_t keys) {
  Context& ctx = args.ctx;
  const DType dtype = usual_dtype(ctx);
  const Buffer q = random_tensor(ctx, dtype, {1, queries, heads.heads, heads.dim}, 3);
  const Buffer out(dtype, {1, queries, heads.heads, heads.dim}, ctx.device());
  // A token reads keys that nobody has just used: several caches in turns.
  const std::int64_t cache_bytes = 2 * keys * heads.kv_heads * heads.dim * size_of(dtype);
  const std::int64_t copies =
      queries > 1 ? 1 : std::min<std::int64_t>((std::int64_t{96} << 20) / cache_bytes + 1, 32);
  std::vector<Buffer> k, v;
  for (std::int64_t i = 0; i < copies; ++i) {
    k.push_back(random_tensor(ctx, dtype, {1, keys, heads.kv_heads, heads.dim}, 4));
    v.push_back(random_tensor(ctx, dtype, {1, keys, heads.kv_heads, heads.dim}, 5));
  }
  measure_op(args,
             {.suite = "attention",
              .test = fmt::format("{} ({} heads, {} of keys, dim {}), {}", heads.name, heads.heads,
                                  heads.kv_heads, heads.dim,
                                  queries == 1 ? fmt::format("1 token after {}", keys - 1)
                                               : fmt::format("prompt of {}", queries)),
              .from_memory = queries == 1},
             [&](std::int64_t call) {
               const auto turn = static_cast<std::size_t>(call % copies);
               attention(ctx, {.q = q.tensor(),
                               .k = k[turn].tensor(),
                               .v = v[turn].tensor(),
                               .out = out.tensor(),
                               .mask = Mask::causal()});
             });
}

}  // namespace

void bench_attention(const SuiteArgs& args) {
  for (const Heads& heads : kBenchHeads) {
    bench_call(args, heads, 512, 512);
    if (!args.quick) bench_call(args, heads, 2048, 2048);
    bench_call(args, heads, 1, 2048);
  }
}

}  // namespace tessera::app
