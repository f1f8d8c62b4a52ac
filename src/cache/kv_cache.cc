// The cache of one stream: pools for all layers in one block of memory, and the small tensors that
// tell the ops of a step where its tokens go and what they see.
#include "tessera/kv_cache.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cache/stream_layout.h"
#include "core/checked.h"
#include "core/format.h"
#include "core/workspace.h"

namespace tessera {
namespace {

using Kind = CachePolicy::Kind;

KvCacheOptions checked(const KvCacheOptions& options) {
  const std::int64_t sizes[] = {options.layers, options.kv_heads, options.head_dim};
  if (*std::min_element(std::begin(sizes), std::end(sizes)) < 1) {
    fail(ErrorCode::invalid_argument,
         "KvCache: {} layers of {} key heads of {} elements; each must be at least 1",
         options.layers, options.kv_heads, options.head_dim);
  }
  if (options.dtype != DType::f32 && options.dtype != DType::f16 && options.dtype != DType::bf16) {
    fail(ErrorCode::invalid_argument, "KvCache: dtype is {}; accepted: f32, f16, bf16",
         name(options.dtype));
  }
  return options;
}

// Bytes of the keys, or of the values, of one layer, on a boundary that every pool begins on.
std::int64_t pool_bytes(const KvCacheOptions& options, const StreamLayout& layout) {
  const std::int64_t token =
      checked_mul(checked_mul(options.kv_heads, options.head_dim), size_of(options.dtype));
  const std::int64_t slots = layout.pages() * layout.page_size();
  return checked_align(checked_mul(slots, token), Buffer::kAlignment);
}

std::int64_t all_pools_bytes(const KvCacheOptions& options, const StreamLayout& layout) {
  return checked_mul(checked_mul(2, options.layers), pool_bytes(options, layout));
}

// Hands out one block of memory from its start on. 64-bit tensors go first: what follows them is
// aligned.
class Packer {
 public:
  Packer(char* host, char* device_data, Device device)
      : host_(host), data_(device_data), device_(device) {}

  // Where the host writes, and in `tensor` how the device sees it.
  template <typename T>
  T* take(DType dtype, std::initializer_list<std::int64_t> shape, Tensor* tensor) {
    *tensor = Tensor(data_ + used_, dtype, shape, device_);
    T* result = reinterpret_cast<T*>(host_ + used_);
    used_ += tensor->bytes();
    return result;
  }
  std::int64_t used() const { return used_; }

 private:
  char *host_, *data_;
  Device device_;
  std::int64_t used_ = 0;
};

// Bytes of the small tensors of a step of max_step tokens: position (8 bytes), slot, length and
// hole (two numbers) of each, and the table.
std::int64_t block_bytes(const KvCacheOptions& options, const StreamLayout& layout) {
  constexpr std::int64_t kTokenBytes = 8 + 4 * (1 + 1 + 2);
  return checked_add(checked_mul(options.max_step, kTokenBytes), layout.pages() * 4);
}

// Memory on a device; where the Context's workspace only counts, addresses without memory.
class CacheMemory {
 public:
  CacheMemory(Context& ctx, std::int64_t bytes)
      : frame_(ctx.workspace().is_counting() ? std::make_unique<Workspace::Frame>(ctx.workspace())
                                             : nullptr),
        buffer_(frame_ ? 0 : bytes, ctx.device()),
        data_(frame_ ? frame_->take<char>(bytes) : static_cast<char*>(buffer_.data())) {}

  char* data() const { return data_; }
  bool is_there() const { return !frame_; }

 private:
  std::unique_ptr<Workspace::Frame> frame_;
  Buffer buffer_;
  char* data_;
};

}  // namespace

std::string to_string(const CachePolicy& policy) {
  switch (policy.kind) {
    case Kind::full:
      return "full";
    case Kind::window:
      return fmt::format("window({})", policy.window);
    case Kind::sinks:
      return fmt::format("sinks({}, {})", policy.n_sink, policy.window);
  }
  return "unknown";
}

std::int64_t kv_cache_bytes(const KvCacheOptions& options) {
  const StreamLayout layout(checked(options));
  return checked_add(all_pools_bytes(options, layout), block_bytes(options, layout));
}

struct KvCache::State {
  State(Context& ctx, const KvCacheOptions& given)
      : options(checked(given)),
        layout(options),
        device(ctx.device()),
        pool_stride(pool_bytes(options, layout)),
        pools(ctx, all_pools_bytes(options, layout)),
        host_block(block_bytes(options, layout)),
        device_block(ctx, device.is_cpu() ? 0 : host_block.bytes()) {}

  bool rolls() const { return options.policy.kind == Kind::sinks && !layout.fits(seen); }
  Tensor pool(std::int64_t index) const {
    return {pools.data() + index * pool_stride,
            options.dtype,
            {layout.pages(), layout.page_size(), options.kv_heads, options.head_dim},
            device};
  }
  void check_layer(std::int64_t layer) const {
    if (layer >= 0 && layer < options.layers) return;
    fail(ErrorCode::invalid_argument, "KvCache: there is no layer {}; the cache has 0..{}", layer,
         options.layers - 1);
  }
  CacheStep fill_step(Packer& packer, std::int64_t tokens) const;
  void fill_sequences(Packer& packer, CacheStep& step) const;

  KvCacheOptions options;
  StreamLayout layout;
  Device device;
  std::int64_t pool_stride;  // bytes from one pool to the next: keys of a layer, its values, ...
  CacheMemory pools;
  Buffer host_block;         // the small tensors of a step
  CacheMemory device_block;  // the same on a GPU
  std::int64_t seen = 0;
};

CacheStep KvCache::State::fill_step(Packer& packer, std::int64_t tokens) const {
  CacheStep step;
  step.tokens = tokens;
  step.rope_on_read = options.policy.kind == Kind::sinks;
  step.batch = rolls() ? tokens : 1;
  step.mask = options.policy.kind == Kind::window ? Mask::window(options.policy.window - 1, 0)
                                                  : Mask::causal();
  std::int64_t* positions = packer.take<std::int64_t>(DType::i64, {tokens}, &step.positions);
  std::int32_t* slots = packer.take<std::int32_t>(DType::i32, {tokens}, &step.slots);
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t t = seen + i;
    positions[i] = step.rope_on_read ? std::min(t, layout.last_position()) : t;
    slots[i] = static_cast<std::int32_t>(layout.slot(t));
  }
  fill_sequences(packer, step);
  return step;
}

// One sequence of all tokens, or one for each: then they share one row of the table, and each has a
// hole of its own.
void KvCache::State::fill_sequences(Packer& packer, CacheStep& step) const {
  const std::int64_t batch = step.batch, tokens_each = step.tokens / batch;
  const std::int64_t table_oldest = layout.oldest(seen);
  std::int32_t* lengths = packer.take<std::int32_t>(DType::i32, {batch}, &step.pages.lengths);
  std::int32_t* holes = packer.take<std::int32_t>(DType::i32, {batch, 2}, &step.pages.holes);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t first = seen + b, last = first + tokens_each - 1;
    const std::int64_t oldest = layout.oldest(first), length = layout.length(oldest, last);
    lengths[b] = static_cast<std::int32_t>(length);
    holes[2 * b] = static_cast<std::int32_t>(layout.n_sink());
    holes[2 * b + 1] = static_cast<std::int32_t>(layout.hole_size(oldest, table_oldest));
    step.max_keys = std::max(step.max_keys, length);
  }
  const std::int64_t pages = layout.table_size(table_oldest, seen + step.tokens - 1);
  std::int32_t* table = packer.take<std::int32_t>(DType::i32, {1, pages}, &step.pages.table);
  for (std::int64_t i = 0; i < pages; ++i) {
    table[i] = static_cast<std::int32_t>(layout.table_entry(i, table_oldest));
  }
  // One row for all, of the same size in every step. Entries that were not filled are not read.
  Tensor& all = step.pages.table;
  all.shape[0] = batch, all.shape[1] = layout.pages();
  all.strides[0] = 0;
}

KvCache::KvCache(Context& ctx, const KvCacheOptions& options)
    : state_(std::make_unique<State>(ctx, options)) {}

KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

std::int64_t KvCache::step_size(std::int64_t wanted) const {
  const KvCacheOptions& options = state_->options;
  if (wanted < 0) fail(ErrorCode::invalid_argument, "KvCache: {} tokens were asked for", wanted);
  const std::int64_t most = std::min(wanted, options.max_step);
  switch (options.policy.kind) {
    case Kind::full:
      if (wanted > options.max_tokens - state_->seen) {
        fail(ErrorCode::invalid_argument,
             "the cache holds at most {} tokens: {} are in it, and there is no room for {} more; "
             "a cache with attention sinks or a window takes streams of any length",
             options.max_tokens, state_->seen, wanted);
      }
      return most;
    case Kind::window:
      return most;
    case Kind::sinks:
      return state_->rolls() ? most
                             : std::min(most, state_->layout.last_position() + 1 - state_->seen);
  }
  return most;
}

CacheStep KvCache::step(Context& ctx, std::int64_t tokens) {
  State& state = *state_;
  if (ctx.device() != state.device) {
    fail(ErrorCode::invalid_argument, "KvCache: the cache is on {}, but the context runs on {}",
         state.device, ctx.device());
  }
  if (tokens < 1) {
    fail(ErrorCode::invalid_argument,
         "KvCache: a step of {} tokens was asked for; it must bring at least 1", tokens);
  }
  const std::int64_t most = step_size(tokens);
  if (tokens > most) {
    fail(
        ErrorCode::invalid_argument,
        "KvCache: a step of {} tokens was asked for; the next one takes 1..{}, as step_size() says",
        tokens, most);
  }
  char* host = static_cast<char*>(state.host_block.data());
  const bool on_cpu = state.device.is_cpu();
  Packer packer(host, on_cpu ? host : state.device_block.data(), state.device);
  CacheStep step = state.fill_step(packer, tokens);
  if (!on_cpu && state.device_block.is_there()) {
    copy_bytes(ctx, state.device_block.data(), state.device, host, Device{}, packer.used());
  }
  state.seen += tokens;
  return step;
}

Tensor KvCache::keys(std::int64_t layer) const {
  state_->check_layer(layer);
  return state_->pool(2 * layer);
}

Tensor KvCache::values(std::int64_t layer) const {
  state_->check_layer(layer);
  return state_->pool(2 * layer + 1);
}

const KvCacheOptions& KvCache::options() const { return state_->options; }
std::int64_t KvCache::seen() const { return state_->seen; }

std::int64_t KvCache::kept() const {
  if (state_->options.policy.kind == Kind::full) return state_->seen;
  return std::min(state_->seen, state_->layout.last_position());
}

std::int64_t KvCache::bytes() const { return all_pools_bytes(state_->options, state_->layout); }
void KvCache::clear() { state_->seen = 0; }
void KvCache::skip(std::int64_t tokens) { state_->seen = checked_add(state_->seen, tokens); }

}  // namespace tessera
