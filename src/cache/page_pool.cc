#include "tessera/page_pool.h"

#include <algorithm>
#include <iterator>

#include "cache/page_pool_state.h"
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
  if (options.dtype != DType::f32 && options.dtype != DType::f16 && options.dtype != DType::bf16) {
    fail(ErrorCode::invalid_argument, "cache: dtype is {}; accepted: f32, f16, bf16",
         name(options.dtype));
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

// Of all pages, on a boundary that every layer's tensor begins on.
std::int64_t layer_stride(const PagePoolOptions& options) {
  const std::int64_t pages = options.share().kept(options.pages);
  return checked_align(checked_mul(pages, page_bytes(options)), Buffer::kAlignment);
}

}  // namespace

std::int64_t page_pool_bytes(const PagePoolOptions& options) {
  return checked_mul(checked_mul(2, options.layers), layer_stride(checked_pool(options)));
}

PagePool::State::State(Context& ctx, const PagePoolOptions& given)
    : options(checked_pool(given)),
      device(ctx.device()),
      stride(layer_stride(options)),
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

void check_layer(const PagePoolOptions& options, std::int64_t layer) {
  if (layer >= 0 && layer < options.layers) return;
  fail(ErrorCode::invalid_argument, "cache: there is no layer {}; the cache has 0..{}", layer,
       options.layers - 1);
}

}  // namespace

Tensor PagePool::keys(std::int64_t layer) const {
  check_layer(state_->options, layer);
  return layer_tensor(state_->options, state_->device,
                      state_->memory.data() + 2 * layer * state_->stride);
}

Tensor PagePool::values(std::int64_t layer) const {
  check_layer(state_->options, layer);
  return layer_tensor(state_->options, state_->device,
                      state_->memory.data() + (2 * layer + 1) * state_->stride);
}

const PagePoolOptions& PagePool::options() const { return state_->options; }
Device PagePool::device() const { return state_->device; }
std::int64_t PagePool::bytes() const { return 2 * state_->options.layers * state_->stride; }
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
  const std::int64_t bytes = page_bytes(state.options);
  for (std::int64_t i = 0; i < 2 * state.options.layers; ++i) {
    char* layer = state.memory.data() + i * state.stride;
    copy_bytes(ctx, layer + to * bytes, state.device, layer + from * bytes, state.device, bytes);
  }
}

}  // namespace tessera
