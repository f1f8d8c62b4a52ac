// Scores a text step by step. The logits [rows, vocab] of each step come to the host, and each row
// is reduced to one number.
//
//   chunk     |bos| c  c  c  c  c  c  c  c |         c: tokens of the text
//   logits      |  |  |  |  |  |  |  |  |            of each token that has a successor
//   scored         ^  ^  ^  ^  ^  ^  ^  ^            by the logits of the token before it
#include "tessera/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/fail.h"
#include "core/thread_pool.h"
#include "core/workspace.h"
#include "cpu/sampling/logits.h"
#include "engine/forward_ids.h"

namespace tessera {
namespace {

// The most logits in one step: 64 MiB of f32.
constexpr std::int64_t kMaxStepLogits = std::int64_t{16} << 20;
constexpr std::int64_t kMaxStep = 256;  // tokens; beyond that a matrix product gains nothing

std::int64_t step_tokens(const Model& model) {
  return std::clamp(kMaxStepLogits / model.config().vocab, std::int64_t{1}, kMaxStep);
}

// log(sum of exp(logits)) - logits[target]
float row_nll(std::span<const float> logits, std::int32_t target, std::vector<float>& scratch) {
  scratch.resize(cpu::logit_blocks(logits.size()));
  cpu::block_maxima(logits, scratch);
  const float largest = cpu::largest_of(scratch);
  if (!std::isfinite(largest)) {
    fail(ErrorCode::invalid_argument,
         "the model's logits are {}: its numbers have left their range; try f32 or bf16, or check "
         "the checkpoint",
         largest);
  }
  cpu::block_sums(logits, largest, 1.f, scratch);
  const double sum = std::accumulate(scratch.begin(), scratch.end(), 0.0);
  return static_cast<float>(largest + std::log(sum) - logits[static_cast<std::size_t>(target)]);
}

class Scorer {
 public:
  Scorer(Context& ctx, const Model& model, KvCache& cache, const PerplexityOptions& options,
         std::int64_t total)
      : ctx_(ctx),
        model_(model),
        cache_(cache),
        options_(options),
        total_(total),
        vocab_(model.config().vocab),
        max_step_(std::min(step_tokens(model), cache.options().max_step)),
        frame_(reserved_workspace(ctx, model, cache, max_step_)),
        scratch_(static_cast<std::size_t>(ctx.threads())) {
    logits_ = frame_.take(DType::f32, {max_step_, vocab_});
    if (!ctx.device().is_cpu()) host_.resize(static_cast<std::size_t>(logits_.numel()));
    result_.nlls.reserve(static_cast<std::size_t>(total));
    result_.positions.reserve(static_cast<std::size_t>(total));
  }

  // Feeds ids to the model after what the cache holds. Scores the tokens from index `first_scored`
  // (1 or more) on, each from the logits of the one before it. `position` is that of ids[0] in the
  // text. The last token's own logits are not needed. Returns false if it was cancelled.
  bool score(std::span<const std::int32_t> ids, std::int64_t first_scored, std::int64_t position) {
    const std::int64_t end = static_cast<std::int64_t>(ids.size()) - 1;
    for (std::int64_t at = 0; at < end;) {
      if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed)) {
        result_.cancelled = true;
        return false;
      }
      const std::int64_t n = cache_.step_size(std::min(max_step_, end - at));
      const std::int64_t rows = std::clamp(at + n - (first_scored - 1), std::int64_t{0}, n);
      forward(ids.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)), rows);
      at += n;
      if (rows == 0) continue;
      const std::int64_t first = at - rows + 1;
      add(ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)),
          position + first);
    }
    ++result_.chunks;
    return true;
  }

  PerplexityResult finish() {
    result_.tokens = static_cast<std::int64_t>(result_.nlls.size());
    if (result_.tokens == 0) return result_;
    const double sum = std::accumulate(result_.nlls.begin(), result_.nlls.end(), 0.0);
    result_.nll = sum / static_cast<double>(result_.tokens);
    result_.nll_error = block_standard_error(result_.nlls);
    result_.ppl = std::exp(result_.nll);
    result_.ppl_error = result_.ppl * result_.nll_error;  // d exp(x) = exp(x) dx
    return std::move(result_);
  }

 private:
  void forward(std::span<const std::int32_t> ids, std::int64_t rows) {
    forward_ids(ctx_, model_, cache_, ids, rows > 0 ? logits_.slice(0, 0, rows) : Tensor{});
  }

  // Adds the nlls of `targets`, one for each row of logits. `position` is that of the first target.
  void add(std::span<const std::int32_t> targets, std::int64_t position) {
    const std::size_t rows = targets.size(), vocab = static_cast<std::size_t>(vocab_);
    const float* logits = logits_.ptr<const float>();
    if (!ctx_.device().is_cpu()) {
      copy_bytes(ctx_, host_.data(), Device::cpu(), logits, ctx_.device(),
                 static_cast<std::int64_t>(rows * vocab * sizeof(float)));
      logits = host_.data();
    }
    const std::size_t done = result_.nlls.size();
    result_.nlls.resize(done + rows);
    ctx_.pool().parallel_for(static_cast<std::int64_t>(rows), [&](std::int64_t row, int worker) {
      const std::size_t r = static_cast<std::size_t>(row);
      result_.nlls[done + r] = row_nll({logits + r * vocab, vocab}, targets[r],
                                       scratch_[static_cast<std::size_t>(worker)]);
    });
    for (std::size_t r = 0; r < rows; ++r) {
      result_.positions.push_back(position + static_cast<std::int64_t>(r));
    }
    if (options_.progress) {
      options_.progress(static_cast<std::int64_t>(result_.nlls.size()), total_);
    }
  }

  Context& ctx_;
  const Model& model_;
  KvCache& cache_;
  const PerplexityOptions& options_;
  std::int64_t total_, vocab_, max_step_;
  Workspace::Frame frame_;
  Tensor logits_;
  std::vector<float> host_;
  std::vector<std::vector<float>> scratch_;  // one for each worker
  PerplexityResult result_;
};

void check_ids(std::span<const std::int32_t> ids, const PerplexityOptions& options,
               std::int64_t vocab) {
  if (ids.size() < 2) {
    fail(ErrorCode::invalid_argument, "the text has {} token{}; perplexity needs at least 2",
         ids.size(), ids.size() == 1 ? "" : "s");
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      fail(ErrorCode::invalid_argument,
           "token {} of the text is {}; the model's vocabulary has the tokens 0 to {}", i, ids[i],
           vocab - 1);
    }
  }
  if (options.bos < -1 || options.bos >= vocab) {
    fail(ErrorCode::invalid_argument,
         "bos is {}; it must be -1 (none) or one of the model's tokens 0 to {}", options.bos,
         vocab - 1);
  }
}

}  // namespace

PerplexityResult perplexity(Context& ctx, const Model& model, std::span<const std::int32_t> ids,
                            const PerplexityOptions& options) {
  check_ids(ids, options, model.config().vocab);
  const std::int64_t context =
      options.context == 0 ? model.config().max_positions : options.context;
  const std::int64_t lead = options.bos >= 0 ? 1 : 0;  // tokens in front of each chunk
  if (context < 2 + lead) {
    fail(ErrorCode::invalid_argument,
         "a context of {} tokens scores nothing; it must be {} or more", context, 2 + lead);
  }
  const std::int64_t length = context - lead;  // tokens of the text in a chunk
  if (options.stride < 0 || options.stride > context) {
    fail(ErrorCode::invalid_argument, "the stride is {}; it must be from 1 to {}, the context",
         options.stride, context);
  }
  // With a stride of the whole context, chunks do not overlap, with or without a bos token in them.
  const std::int64_t stride = options.stride == 0 ? length : std::min(options.stride, length);
  const std::int64_t n = static_cast<std::int64_t>(ids.size());
  // The first token that a chunk scores if it begins here. No token is scored twice, and a chunk
  // never scores its own first token.
  const auto first_scored = [&](std::int64_t begin) {
    return begin == 0 ? 1 - lead : std::max(begin + 1 - lead, begin - stride + length);
  };
  std::int64_t total = 0;
  for (std::int64_t begin = 0; begin < n && first_scored(begin) < n; begin += stride) {
    total += std::min(begin + length, n) - first_scored(begin);
  }
  KvCache cache = model.make_cache(ctx, CachePolicy::full(), context, step_tokens(model),
                                   step_tokens(model), options.cache_dtype);
  Scorer scorer(ctx, model, cache, options, total);
  std::vector<std::int32_t> chunk;
  for (std::int64_t begin = 0; begin < n && first_scored(begin) < n; begin += stride) {
    const std::int64_t end = std::min(begin + length, n);
    chunk.assign(static_cast<std::size_t>(lead), static_cast<std::int32_t>(options.bos));
    chunk.insert(chunk.end(), ids.begin() + begin, ids.begin() + end);
    cache.clear();
    if (!scorer.score(chunk, first_scored(begin) - begin + lead, begin - lead)) break;
  }
  return scorer.finish();
}

PerplexityResult stream_perplexity(Context& ctx, const Model& model, KvCache& cache,
                                   std::span<const std::int32_t> ids,
                                   const PerplexityOptions& options) {
  check_ids(ids, options, model.config().vocab);
  std::vector<std::int32_t> stream;
  if (options.bos >= 0) stream.push_back(static_cast<std::int32_t>(options.bos));
  stream.insert(stream.end(), ids.begin(), ids.end());
  Scorer scorer(ctx, model, cache, options, static_cast<std::int64_t>(stream.size()) - 1);
  scorer.score(stream, 1, options.bos >= 0 ? -1 : 0);
  return scorer.finish();
}

}  // namespace tessera
