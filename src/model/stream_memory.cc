#include "model/stream_memory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/available_memory.h"
#include "core/cache_dtype.h"
#include "core/checked.h"
#include "core/fail.h"
#include "core/workspace.h"
#include "model/memory_refusal.h"
#include "tessera/sample.h"

namespace tessera {
namespace model {
namespace {

using Kind = CachePolicy::Kind;

// The pass over a step, its logits, and the draw of the next tokens.
void count_pass(Context& ctx, const Model& model, const CacheStep& step, std::int64_t logit_rows) {
  Workspace::Frame frame(ctx.workspace());
  const Tensor logits = frame.take(DType::f32, {logit_rows, model.config().vocab});
  const Tensor drawn = frame.take(DType::i32, {logit_rows});
  model.forward(ctx, {.step = &step, .logits = logits.slice(0, 0, step.logits)});
  // A GPU draws where the logits are.
  if (!ctx.device().is_cpu()) sample(ctx, {.logits = logits, .ids = drawn});
}

// The page table is as wide as it may get, because kernels plan their work by the width. `rolling`:
// a step of a stream with sinks that has outgrown them, where each token is a sequence.
std::int64_t count_step(Context& ctx, const Model& model, const KvCacheOptions& options,
                        std::int64_t logit_rows, bool rolling, bool is_prompt = false) {
  const Workspace::Count count(ctx.workspace());
  KvCache cache(ctx, options);
  CacheBatchLimits limits = cache.batch().limits();
  limits.width_step = limits.max_pages_of_a_sequence;
  CacheBatch widest(ctx, cache.pool(), limits);
  const std::int64_t of_cache = count.used_bytes();
  if (rolling) cache.skip(options.policy.n_sink + options.policy.window);
  const bool full = options.policy.kind == Kind::full;
  const std::int64_t n =
      cache.step_size(full ? std::min(options.max_step, options.max_tokens) : options.max_step);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  const CacheBatch::Part part{&cache.sequence(), ids, std::min(logit_rows, n), is_prompt};
  count_pass(ctx, model, widest.step(ctx, {&part, 1}), logit_rows);
  return count.peak_bytes() - of_cache;
}

// The first token of a stream. A GPU may run it in a kernel that longer streams do not take.
std::int64_t count_first_token(Context& ctx, const Model& model, const KvCacheOptions& options,
                               std::int64_t logit_rows) {
  const Workspace::Count count(ctx.workspace());
  KvCache cache(ctx, options);
  const std::int64_t of_cache = count.used_bytes();
  const std::int32_t id = 0;
  count_pass(ctx, model, cache.step(ctx, {&id, 1}, 1), logit_rows);
  return count.peak_bytes() - of_cache;
}

// A step of equal sequences, each at its longest. They are forks, so that a pool of one is enough.
struct BatchCase {
  CachePolicy policy{};
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;  // of each
  bool is_prompt = false;
};

std::int64_t count_batch_step(Context& ctx, const Model& model, const PagePoolOptions& pool_options,
                              const CacheBatchLimits& limits, std::int64_t logit_rows,
                              const BatchCase& batch_case) {
  const auto& [policy, sequences, tokens, is_prompt] = batch_case;
  const std::int64_t page_size = pool_options.page_size;
  const std::int64_t pages = limits.max_pages_of_a_sequence, capacity = pages * page_size;
  PagePoolOptions options = pool_options;
  options.pages = pages + sequences * (2 + ceil_div(tokens, page_size));
  options.prefix_cache = false;
  const Workspace::Count count(ctx.workspace());
  PagePool pool(ctx, options);
  CacheBatch batch(ctx, pool, limits);
  const std::int64_t of_cache = count.used_bytes();
  CacheSequence first(pool, policy, capacity, std::max(tokens, capacity));
  const std::int64_t before = policy.kind == Kind::full ? capacity - tokens : capacity;
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  if (before > 0) {  // one token takes all pages
    first.skip(before - 1);
    const CacheBatch::Part part{&first, std::span(ids).first(1), 0};
    batch.step(ctx, {&part, 1});
  }
  std::vector<CacheSequence> forks;
  for (std::int64_t i = 0; i < sequences; ++i) forks.push_back(first.fork());
  first.clear();
  std::vector<CacheBatch::Part> parts;
  std::int64_t rows_left = logit_rows;
  for (CacheSequence& fork : forks) {
    const std::int64_t rows = std::min({rows_left, tokens, ceil_div(logit_rows, sequences)});
    rows_left -= rows;
    parts.push_back({&fork, ids, rows, is_prompt});
  }
  count_pass(ctx, model, batch.step(ctx, parts), logit_rows);
  return count.peak_bytes() - of_cache;
}

// Without the workspace, because counting that takes a pass over the model: a cache that is too
// large by itself is refused before.
CacheRequest cache_request(const Context& ctx, const Model& model, const KvCacheOptions& options) {
  return {.memory = available_memory(ctx),
          .weights = model.weight_bytes(),
          .kv = kv_cache_bytes(options),
          .policy = options.policy,
          .tokens = options.max_tokens};
}

DType checked_cache_dtype(const Context& ctx, const Model& model, std::optional<DType> chosen) {
  if (!chosen) return model.cache_dtype(ctx);
  const DType dtype = *chosen, of_model = model.dtype();
  if (!can_store(dtype, of_model)) {
    fail(ErrorCode::invalid_argument,
         "a cache of {} does not fit a model of {}; choose {}, {}f8e4m3 or i8", name(dtype),
         name(of_model), name(of_model), of_model == DType::f32 ? "f16, bf16, " : "");
  }
  if (dtype != of_model && !has_scales(dtype) && !ctx.device().is_cpu()) {
    fail(ErrorCode::unsupported,
         "a cache of {} for a model of {} is for the CPU only; on {} choose {}, f8e4m3 or i8, or "
         "load the model as {}",
         name(dtype), name(of_model), to_string(ctx.device()), name(of_model), name(dtype));
  }
  return dtype;
}

[[noreturn]] void refuse_cache(Context& ctx, const Model& model, const KvCacheOptions& options,
                               std::int64_t logit_rows, const std::string& reason) {
  CacheRequest request = cache_request(ctx, model, options);
  const std::int64_t available = request.memory.bytes;
  if (request.kv <= available) request.workspace = model.workspace_bytes(ctx, options, logit_rows);
  KvCacheOptions smaller = options;
  std::int64_t& tokens =
      options.policy.kind == Kind::full ? smaller.max_tokens : smaller.policy.window;
  request.largest = largest_that_fits(tokens, available, [&](std::int64_t n) {
    tokens = n;
    const std::int64_t kv = kv_cache_bytes(smaller);
    if (kv > available) return kv;
    return checked_add(kv, model.workspace_bytes(ctx, smaller, logit_rows));
  });
  throw Error(ErrorCode::out_of_memory, refusal(request) + reason);
}

}  // namespace

std::int64_t count_workspace(Context& ctx, const Model& model, const KvCacheOptions& cache,
                             std::int64_t logit_rows) {
  std::int64_t bytes = count_step(ctx, model, cache, logit_rows, false);
  if (!ctx.device().is_cpu()) {
    bytes = std::max(bytes, count_first_token(ctx, model, cache, logit_rows));
  } else if (cache.max_step <= CacheBatch::kFewTokens) {
    bytes = std::max(bytes, count_step(ctx, model, cache, logit_rows, false, true));
  }
  if (cache.policy.kind != Kind::sinks) return bytes;
  return std::max(bytes, count_step(ctx, model, cache, logit_rows, true));
}

// Kernels split their work by the numbers of sequences and queries, so the largest step is not
// always the one that needs the most memory.
std::int64_t count_workspace(Context& ctx, const Model& model, const PagePoolOptions& pool,
                             const CacheBatchLimits& limits, std::int64_t logit_rows) {
  const std::int64_t capacity = limits.max_pages_of_a_sequence * pool.page_size;
  std::int64_t most = 0;
  const auto add = [&](const CachePolicy& policy, std::int64_t sequences, std::int64_t tokens,
                       bool is_prompt = false) {
    most = std::max(most, count_batch_step(ctx, model, pool, limits, logit_rows,
                                           {policy, sequences, tokens, is_prompt}));
  };
  const std::int64_t longest = std::min(limits.max_tokens, capacity);
  // A window that fits beside a step, wherever in a page it begins.
  const std::int64_t window = capacity - longest - pool.page_size + 2;
  for (std::int64_t n = 1; n <= std::min(limits.max_sequences, limits.max_tokens); ++n) {
    const bool power = (n & (n - 1)) == 0;
    if (n > 16 && !power && n < limits.max_sequences) continue;
    add(CachePolicy::full(), n, 1);
    const std::int64_t each = std::min(limits.max_tokens / n, capacity);
    if (each > 1) add(CachePolicy::full(), n, each);
    // On the CPU, a prompt's few tokens run in the kernels of many.
    const bool few = each <= CacheBatch::kFewTokens;
    if (few && ctx.device().is_cpu()) add(CachePolicy::full(), n, each, true);
  }
  if (window >= 1) {
    add(CachePolicy::last(window), 1, longest);
    add(CachePolicy::sinks(0, window), 1, longest);
  }
  return most;
}

}  // namespace model

std::int64_t Model::workspace_bytes(Context&, const KvCacheOptions&, std::int64_t) const {
  return 0;
}

std::int64_t Model::workspace_bytes(Context&, const PagePoolOptions&, const CacheBatchLimits&,
                                    std::int64_t) const {
  return 0;
}

bool Model::fuses_layers(Context&, const CacheStep&) const { return false; }

bool Model::fuses_embedding() const { return false; }

void Model::reserve_workspace(Context& ctx, const KvCacheOptions& cache,
                              std::int64_t logit_rows) const {
  ctx.workspace().reserve(workspace_bytes(ctx, cache, logit_rows));
}

DType Model::cache_dtype(const Context& ctx) const {
  const bool rounds =
      ctx.device().is_cpu() && ctx.activations() == Activations::int8 &&
      std::any_of(linear_layers_.begin(), linear_layers_.end(), [](const LayerInfo& layer) {
        return layer.weight.layout == WeightLayout::cpu_tiles;
      });
  return rounds && dtype_ == DType::f32 ? DType::f16 : dtype_;
}

void Model::check_policy(const CachePolicy& policy) const {
  if (policy.kind != CachePolicy::Kind::sinks) return;
  const std::shared_ptr<PoolWatcher> watcher = watch_pool();
  if (watcher && watcher->share().size > 1) {
    fail(ErrorCode::unsupported,
         "{}: keys are rotated by their place in the whole cache, which a process does not know if "
         "the cache is spread; use one process, or keep every token",
         to_string(policy));
  }
  const std::int64_t kept = policy.n_sink + policy.window;
  for (const std::int64_t window : config_.windows) {
    if (window == 0 || window >= kept) continue;
    fail(ErrorCode::unsupported,
         "{} keeps {} tokens, but layers of this model see only the last {}: choose sinks and a "
         "window of at most {} tokens together",
         to_string(policy), kept, window, window);
  }
}

KvCache Model::make_cache(Context& ctx, const CachePolicy& policy, std::int64_t max_tokens,
                          std::int64_t max_step, std::int64_t logit_rows,
                          std::optional<DType> dtype) const {
  check_policy(policy);
  const KvCacheOptions options{.layers = config_.layers,
                               .kv_heads = config_.kv_heads,
                               .head_dim = config_.head_dim,
                               .dtype = model::checked_cache_dtype(ctx, *this, dtype),
                               .policy = policy,
                               .max_tokens = max_tokens,
                               .max_step = max_step,
                               .watcher = watch_pool()};
  model::CacheRequest request = model::cache_request(ctx, *this, options);
  if (request.fits()) request.workspace = workspace_bytes(ctx, options, logit_rows);
  if (!request.fits()) model::refuse_cache(ctx, *this, options, logit_rows, "");
  try {
    KvCache cache(ctx, options);
    ctx.workspace().reserve(request.workspace);
    return cache;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    // Another program took the memory meanwhile.
    model::refuse_cache(ctx, *this, options, logit_rows, fmt::format(" ({})", error.what()));
  }
}

std::unique_ptr<PagePool> Model::make_pool(Context& ctx, const PoolRequest& request) const {
  PagePoolOptions options{.layers = config_.layers,
                          .kv_heads = config_.kv_heads,
                          .head_dim = config_.head_dim,
                          .dtype = model::checked_cache_dtype(ctx, *this, request.dtype),
                          .pages = 1,
                          .page_size = request.page_size,
                          .prefix_cache = request.prefix_cache,
                          .watcher = watch_pool()};
  const std::int64_t block = cache_batch_bytes(request.limits);
  const std::int64_t longest = request.limits.max_pages_of_a_sequence;
  const std::int64_t sequences = std::min(request.limits.max_sequences, request.limits.max_tokens);
  const std::int64_t rows = request.logit_rows > 0 ? request.logit_rows : sequences;
  const std::int64_t workspace = workspace_bytes(ctx, options, request.limits, rows);
  const AvailableMemory memory = available_memory(ctx);
  const std::int64_t left = memory.bytes - workspace - block;
  const auto bytes_of = [&](std::int64_t pages) {
    options.pages = pages;
    return page_pool_bytes(options);
  };

  const std::int64_t most = INT32_MAX / request.page_size;
  const bool is_chosen = request.pages > 0;
  const std::int64_t wanted =
      is_chosen ? request.pages
                : std::min(most, checked_mul(request.limits.max_sequences, longest));
  const double share = is_chosen                  ? 1.0
                       : request.memory_share > 0 ? request.memory_share
                       : ctx.device().is_cpu()    ? 0.5
                                                  : 0.9;
  const std::int64_t fits = model::largest_that_fits(
      wanted, static_cast<std::int64_t>(share * static_cast<double>(left)), bytes_of);
  const std::int64_t least = is_chosen ? wanted : std::min(wanted, longest);
  if (fits < least) {
    const model::CacheRequest refused{.memory = memory,
                                      .weights = weight_bytes(),
                                      .kv = bytes_of(least),
                                      .workspace = workspace,
                                      .policy = CachePolicy::full(),
                                      .tokens = checked_mul(least, request.page_size),
                                      .largest = fits * request.page_size};
    throw Error(ErrorCode::out_of_memory, model::refusal(refused));
  }
  options.pages = fits;
  auto pool = std::make_unique<PagePool>(ctx, options);
  ctx.workspace().reserve(workspace);
  return pool;
}

}  // namespace tessera
