#include "tessera/page_pool.h"

#include <algorithm>
#include <iterator>

#include "cache/page_pool_state.h"
#include "core/cache_dtype.h"
#include "core/checked.h"
#include "core/format.h"
#include "tessera/buffer.h"

namespace tessera {
namespace {

PagePoolOptions checked_pool(const PagePoolOptions& options) {
  const std::int64_t sizes[] = {options.layers, options.kv_heads, options.head_dim};
  if (*std::min_element(std::begin(sizes), std::end(sizes)) < 1) {
    fail(ErrorCode::invalid_argument,
         "cache: {} layers of {} key heads of {} elements; each must be at least 1", options.layers,
         options.kv_heads, options.head_dim);
  }
  if (!can_store(options.dtype, DType::f32)) {
    fail(ErrorCode::invalid_argument, "cache: dtype is {}; accepted: f32, f16, bf16, f8e4m3, i8",
         name(options.dtype));
  }
  if (has_scales(options.dtype) && options.share().size > 1) {
    fail(ErrorCode::unsupported,
         "cache: pages of {} cannot be spread over {} processes; choose f32, f16 or bf16",
         name(options.dtype), options.share().size);
  }
  if (options.pages < 1 || options.page_size < 1) {
    fail(ErrorCode::invalid_argument,
         "cache: {} pages of {} tokens; a pool needs at least one of each", options.pages,
         options.page_size);
  }
  if (checked_mul(options.pages, options.page_size) > INT32_MAX) {
    fail(ErrorCode::invalid_argument,
         "cache: {} pages of {} tokens are too many; a pool holds up to {} tokens", options.pages,
         options.page_size, INT32_MAX);
  }
  return options;
}

// Bytes of the keys, or of the values, of one page of one layer.
std::int64_t page_bytes(const PagePoolOptions& options) {
  const std::int64_t token =
      checked_mul(checked_mul(options.kv_heads, options.head_dim), size_of(options.dtype));
  return checked_mul(options.page_size, token);
}

// The same of their scales; 0 where there are none.
std::int64_t page_scale_bytes(const PagePoolOptions& options) {
  if (!has_scales(options.dtype)) return 0;
  return checked_mul(checked_mul(options.kv_heads, options.page_size), size_of(DType::f32));
}

// Of all pages, on a boundary that every layer's tensor begins on.
std::int64_t layer_stride(const PagePoolOptions& options, std::int64_t bytes_of_page) {
  const std::int64_t pages = options.share().kept(options.pages);
  return checked_align(checked_mul(pages, bytes_of_page), Buffer::kAlignment);
}

}  // namespace

std::int64_t page_pool_bytes(const PagePoolOptions& given) {
  const PagePoolOptions options = checked_pool(given);
  const std::int64_t pages = layer_stride(options, page_bytes(options));
  const std::int64_t scales = layer_stride(options, page_scale_bytes(options));
  return checked_mul(checked_mul(2, options.layers), checked_add(pages, scales));
}

PagePool::State::State(Context& ctx, const PagePoolOptions& given)
    : options(checked_pool(given)),
      device(ctx.device()),
      stride(layer_stride(options, page_bytes(options))),
      scale_stride(layer_stride(options, page_scale_bytes(options))),
      memory(ctx, page_pool_bytes(options)) {
  pages.reserve(static_cast<std::size_t>(options.pages));
  if (options.prefix_cache) {
    index = std::make_unique<PrefixIndex>(options.pages, options.page_size);
  }
}

void PagePool::State::append(std::int32_t number) {
  List& list = list_of(number);
  page(number).before = list.last;
  page(number).after = -1;
  (list.last >= 0 ? page(list.last).after : list.first) = number;
  list.last = number;
  ++list.size;
}

void PagePool::State::unlink(std::int32_t number) {
  List& list = list_of(number);
  const Page& gone = page(number);
  (gone.before >= 0 ? page(gone.before).after : list.first) = gone.after;
  (gone.after >= 0 ? page(gone.after).before : list.last) = gone.before;
  --list.size;
}

void PagePool::State::drop(std::int32_t number) {
  if (--page(number).holders > 0) return;
  append(number);
  --used;
}

void PagePool::State::check_page(std::int32_t number) const {
  if (number >= 0 && number < std::ssize(pages)) return;
  fail(ErrorCode::invalid_argument, "cache: page {} was never taken from the pool", number);
}

void PagePool::State::forget(std::int32_t number) {
  if (index) index->forget(number);
}

PagePool::PagePool(Context& ctx, const PagePoolOptions& options)
    : state_(std::make_unique<State>(ctx, options)) {}

PagePool::~PagePool() = default;

namespace {

Tensor layer_tensor(const PagePoolOptions& options, Device device, char* data) {
  return {
      data,
      options.dtype,
      {options.share().kept(options.pages), options.page_size, options.kv_heads, options.head_dim},
      device};
}

Tensor scale_tensor(const PagePoolOptions& options, Device device, char* data) {
  if (!has_scales(options.dtype)) return {};
  return {data,
          DType::f32,
          {options.share().kept(options.pages), options.kv_heads, options.page_size},
          device};
}

void check_layer(const PagePoolOptions& options, std::int64_t layer) {
  if (layer >= 0 && layer < options.layers) return;
  fail(ErrorCode::invalid_argument, "cache: there is no layer {}; the cache has 0..{}", layer,
       options.layers - 1);
}

}  // namespace

Tensor PagePool::keys(std::int64_t layer) const {
  check_layer(state_->options, layer);
  return layer_tensor(state_->options, state_->device, state_->pages_at(2 * layer));
}

Tensor PagePool::values(std::int64_t layer) const {
  check_layer(state_->options, layer);
  return layer_tensor(state_->options, state_->device, state_->pages_at(2 * layer + 1));
}

Tensor PagePool::key_scales(std::int64_t layer) const {
  check_layer(state_->options, layer);
  return scale_tensor(state_->options, state_->device, state_->scales_at(2 * layer));
}

Tensor PagePool::value_scales(std::int64_t layer) const {
  check_layer(state_->options, layer);
  return scale_tensor(state_->options, state_->device, state_->scales_at(2 * layer + 1));
}

const PagePoolOptions& PagePool::options() const { return state_->options; }
Device PagePool::device() const { return state_->device; }
std::int64_t PagePool::bytes() const { return page_pool_bytes(state_->options); }
std::int64_t PagePool::used_pages() const { return state_->used; }
std::int64_t PagePool::free_pages() const { return state_->options.pages - state_->used; }

PrefixStats PagePool::prefix_stats() const {
  PrefixStats stats = state_->stats;
  if (state_->index) stats.pages = state_->index->size();
  return stats;
}

std::int32_t PagePool::take() {
  State& state = *state_;
  // A pool that holds nothing starts over, so that a new stream gets neighbouring pages.
  if (state.used == 0 && state.kept.size == 0) {
    state.pages.clear();
    state.free = {};
  }
  std::int32_t number = -1;
  if (std::ssize(state.pages) < state.options.pages) {
    number = static_cast<std::int32_t>(state.pages.size());
    state.pages.emplace_back();
  } else if (state.free.size > 0) {
    number = state.free.first;
    state.unlink(number);
  } else if (state.kept.size > 0) {
    number = state.kept.first;
    state.unlink(number);
    state.forget(number);
    ++state.stats.evictions;
  } else {
    fail(ErrorCode::out_of_memory, "all {} pages of {} tokens of the KV cache are in use",
         state.options.pages, state.options.page_size);
  }
  state.page(number).holders = 1;
  ++state.used;
  return number;
}

void PagePool::share(std::int32_t page) {
  State& state = *state_;
  state.check_page(page);
  if (state.page(page).holders == 0) {
    state.unlink(page);
    ++state.used;
  }
  ++state.page(page).holders;
}

void PagePool::release(std::int32_t page) {
  State& state = *state_;
  state.check_page(page);
  if (state.page(page).holders == 0) {
    fail(ErrorCode::invalid_argument, "cache: page {} was released, but nobody holds it", page);
  }
  state.drop(page);
}

std::int64_t PagePool::holders(std::int32_t page) const {
  const bool used_before = page >= 0 && page < std::ssize(state_->pages);
  return used_before ? state_->page(page).holders : 0;
}

void PagePool::copy_page(Context& ctx, std::int32_t from, std::int32_t to) const {
  const State& state = *state_;
  if (!state.memory.is_there()) return;
  if (state.options.watcher) state.options.watcher->copied(from, to);
  if (state.options.share().size > 1) return;
  const auto copy = [&](char* layer, std::int64_t bytes) {
    copy_bytes(ctx, layer + to * bytes, state.device, layer + from * bytes, state.device, bytes);
  };
  for (std::int64_t i = 0; i < 2 * state.options.layers; ++i) {
    copy(state.pages_at(i), page_bytes(state.options));
    if (state.scale_stride > 0) copy(state.scales_at(i), page_scale_bytes(state.options));
  }
}

}  // namespace tessera
