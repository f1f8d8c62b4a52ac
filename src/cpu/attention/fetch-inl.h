// Prefetching for attention over cached keys: memory is read in order, token by token, while the
// arithmetic goes head by head.

// Per-target include guard: Highway includes this file once for each SIMD target.
#if defined(TESSERA_CPU_ATTENTION_FETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_CPU_ATTENTION_FETCH_INL_H_
#undef TESSERA_CPU_ATTENTION_FETCH_INL_H_
#else
#define TESSERA_CPU_ATTENTION_FETCH_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/checked.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// How many tokens ahead of their use rows are fetched. 4 hide the memory's latency; 8 are 4%
// faster, and 16 no longer fit the L1 cache beside the rows in use.
inline constexpr std::int64_t kAhead = 8;

// The rows of a tile, of keys or of values: those of a block's first head, and how far it is from
// head to head.
template <typename T>
struct TileRows {
  const T* const* rows;
  std::int64_t n, head_stride;
};

// Prefetches in memory order: the rows of a tile from token kAhead on, and then the first kAhead
// rows of what is read after them. Each step fetches some lines; the steps are those of a pass that
// takes four tokens at a time, head by head.
template <typename T>
class Fetcher {
 public:
  Fetcher(std::int64_t heads, std::int64_t dim, const TileRows<T>& tile, const TileRows<T>& behind)
      : parts_{tile, behind}, tokens_(tile.n + std::min(kAhead, behind.n)) {
    // Heads that are neighbours make one run of memory for each token.
    const bool neighbours = tile.head_stride == dim && behind.head_stride == dim;
    runs_ = neighbours ? 1 : heads;
    run_size_ = neighbours ? heads * dim : dim;
    const std::int64_t lines_of_token = runs_ * ceil_div(run_size_, kLine);
    lines_of_step_ = ceil_div(4 * lines_of_token, heads);
    go_to(std::min(kAhead, tile.n), 0);
  }

  HWY_INLINE void fetch() {
    const T* at = at_;  // in a register
    for (std::int64_t i = 0; i < lines_of_step_ && token_ < tokens_; ++i) {
      hwy::Prefetch(at);
      at += kLine;
      if (at < end_) continue;
      run_ + 1 < runs_ ? go_to(token_, run_ + 1) : go_to(token_ + 1, 0);
      at = at_;
    }
    at_ = at;
  }

 private:
  static constexpr std::int64_t kLine = 64 / sizeof(T);  // elements of a cache line

  HWY_NOINLINE void go_to(std::int64_t token, std::int64_t run) {
    token_ = token, run_ = run;
    if (token >= tokens_) return;
    const bool is_behind = token >= parts_[0].n;
    const TileRows<T>& part = parts_[is_behind ? 1 : 0];
    at_ = part.rows[is_behind ? token - parts_[0].n : token] + run * part.head_stride;
    end_ = at_ + run_size_;
  }

  TileRows<T> parts_[2];
  std::int64_t tokens_, runs_, run_size_, lines_of_step_;
  std::int64_t token_ = 0, run_ = 0;  // where at_ is
  const T *at_ = nullptr, *end_ = nullptr;
};

// Prefetches the first kAhead rows of a tile, as the rows that follow an empty tile.
template <typename T>
void fetch_first(std::int64_t heads, std::int64_t dim, const TileRows<T>& rows) {
  Fetcher<T> fetcher(heads, dim, {nullptr, 0, rows.head_stride}, rows);
  for (std::int64_t step = 0; step < kAhead / 4 * heads; ++step) fetcher.fetch();
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
