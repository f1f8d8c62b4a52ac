#include "model/parallel_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "core/workspace.h"
#include "model/step_message.h"
#include "tessera/buffer.h"

namespace tessera::model {
namespace {

using PoolId = std::int64_t;

struct PageCopy {
  std::int32_t from, to;
};

// The sizes of a pool; the rest of its options stays with rank 0.
struct PoolSizes {
  std::int64_t layers, kv_heads, head_dim, pages, page_size;
  DType dtype;
};

enum class Order : std::uint8_t { step, end };

// ---- messages: a first packet of a fixed size, which holds a decoding step, and the rest --------

constexpr std::int64_t kPacket = 2048;

void send_message(parallel::ControlChannel& channel, MessageWriter& message) {
  std::vector<std::byte>& bytes = message.bytes();
  const auto size = std::ssize(bytes);
  std::array<std::byte, kPacket> packet{};
  std::memcpy(packet.data(), &size, sizeof size);
  const std::int64_t here =
      std::min<std::int64_t>(size, kPacket - static_cast<std::int64_t>(sizeof size));
  std::memcpy(packet.data() + sizeof size, bytes.data(), static_cast<std::size_t>(here));
  channel.send_bytes(packet.data(), kPacket);
  if (here < size) channel.send_bytes(bytes.data() + here, size - here);
}

void receive_message(parallel::ControlChannel& channel, std::vector<std::byte>& bytes) {
  std::array<std::byte, kPacket> packet{};
  channel.receive_bytes(packet.data(), kPacket);
  std::ptrdiff_t size = 0;
  std::memcpy(&size, packet.data(), sizeof size);
  bytes.resize(static_cast<std::size_t>(size));
  const std::int64_t here =
      std::min<std::int64_t>(size, kPacket - static_cast<std::int64_t>(sizeof size));
  std::memcpy(bytes.data(), packet.data() + sizeof size, static_cast<std::size_t>(here));
  if (here < size) channel.receive_bytes(bytes.data() + here, size - here);
}

// ---- copies of pages ----------------------------------------------------------------------------

// In a spread pool: copies from the rank that has page `from` to the rank that has page `to`.
void copy_spread_page(Context& ctx, Communicator& ranks, const PagePool& pool, PageCopy copy) {
  const PageShare share = pool.options().share();
  const int from = share.owner(copy.from), to = share.owner(copy.to);
  for (std::int64_t i = 0; i < 2 * pool.options().layers; ++i) {
    const Tensor pages = i % 2 == 0 ? pool.keys(i / 2) : pool.values(i / 2);
    const Tensor source = pages.select(0, share.local(copy.from));
    const Tensor target = pages.select(0, share.local(copy.to));
    if (from == to) {
      if (share.rank != from) continue;
      copy_bytes(ctx, target.data, target.device, source.data, source.device, source.bytes());
    } else if (share.rank == from) {
      ranks.send(ctx, source, to);
    } else if (share.rank == to) {
      ranks.receive(ctx, target, from);
    }
  }
}

// ---- rank 0 -------------------------------------------------------------------------------------

// What rank 0 has not sent to the others yet. Pools may end after the model.
struct Untold {
  PoolId last_pool = 0;
  std::vector<PoolId> ended;
};

class Watcher final : public PoolWatcher {
 public:
  Watcher(std::shared_ptr<Untold> untold, const PageShare& share)
      : untold_(std::move(untold)), share_(share) {}
  ~Watcher() override {
    if (id_ > 0) untold_->ended.push_back(id_);
  }

  void copied(std::int32_t from, std::int32_t to) override { copies_.push_back({from, to}); }
  PageShare share() const override { return share_; }
  // A pool that was only made to count has no id.
  PoolId id() {
    if (id_ == 0) id_ = ++untold_->last_pool;
    return id_;
  }
  std::vector<PageCopy>& copies() { return copies_; }

 private:
  std::shared_ptr<Untold> untold_;
  PageShare share_;
  PoolId id_ = 0;
  std::vector<PageCopy> copies_;
};

class LeadingModel final : public Model {
 public:
  LeadingModel(std::unique_ptr<Model> part, Communicator& ranks, parallel::ControlChannel& channel)
      : part_(std::move(part)), ranks_(ranks), channel_(channel) {
    config_ = part_->config();
    dtype_ = part_->dtype();
    linear_layers_ = part_->linear_layers();
    weight_bytes_ = part_->weight_bytes();
    notes_ = part_->notes();
  }

  void forward(Context& ctx, const ForwardArgs& args) const override {
    if (ctx.workspace().is_counting()) return part_->forward(ctx, args);
    try {
      send_step(ctx, args);
      part_->forward(ctx, args);
    } catch (const std::exception& error) {
      fmt::print(stderr, "tessera: rank 0 of {}: {}\n", ranks_.size(), error.what());
      std::fflush(stderr);
      channel_.abort(1);
    }
  }
  std::int64_t workspace_bytes(Context& ctx, const KvCacheOptions& cache,
                               std::int64_t logit_rows) const override {
    return part_->workspace_bytes(ctx, cache, logit_rows);
  }
  std::int64_t workspace_bytes(Context& ctx, const PagePoolOptions& pool,
                               const CacheBatchLimits& limits,
                               std::int64_t logit_rows) const override {
    return part_->workspace_bytes(ctx, pool, limits, logit_rows);
  }
  void check_files() const override { part_->check_files(); }
  std::shared_ptr<PoolWatcher> watch_pool() const override {
    const std::shared_ptr<PoolWatcher> of_part = part_->watch_pool();
    return std::make_shared<Watcher>(untold_, of_part ? of_part->share() : PageShare{});
  }

 private:
  void send_step(Context& ctx, const ForwardArgs& args) const;

  std::unique_ptr<Model> part_;
  Communicator& ranks_;
  parallel::ControlChannel& channel_;
  std::shared_ptr<Untold> untold_ = std::make_shared<Untold>();
  mutable MessageWriter message_;  // kept for its memory; a Context is used by one thread at a time
};

void LeadingModel::send_step(Context& ctx, const ForwardArgs& args) const {
  const CacheStep& step = *args.step;
  const PagePoolOptions& pool = step.pool->options();
  auto& watcher = dynamic_cast<Watcher&>(*pool.watcher);  // of make_cache() or make_pool()
  const StepBlock block = block_of(step);
  MessageWriter& message = message_;
  message.clear();
  message.put(Order::step);
  message.put(std::ssize(untold_->ended));
  for (const PoolId id : untold_->ended) message.put(id);
  untold_->ended.clear();
  message.put(watcher.id());
  message.put(
      PoolSizes{pool.layers, pool.kv_heads, pool.head_dim, pool.pages, pool.page_size, pool.dtype});
  message.put(std::ssize(watcher.copies()));
  for (const PageCopy copy : watcher.copies()) message.put(copy);
  message.put(args.logits.defined());
  message.put(args.largest_logits);
  message.put(static_cast<bool>(args.observe));
  message.put(args.drawn.defined() ? args.drawn.numel() : std::int64_t{-1});
  message.put(block.bytes);
  write_step(message, step, block);
  const char* contents = step.host_block + (block.begin - step.device_block);
  message.append(
      {reinterpret_cast<const std::byte*>(contents), static_cast<std::size_t>(block.bytes)});
  send_message(channel_, message);
  if (watcher.share().size > 1) {
    for (const PageCopy copy : watcher.copies()) copy_spread_page(ctx, ranks_, *step.pool, copy);
  }
  watcher.copies().clear();
  // The host has not read these tokens: they go from GPU to GPU.
  if (args.drawn.defined()) ranks_.broadcast(ctx, args.drawn, 0);
}

// ---- every other rank ---------------------------------------------------------------------------

class Follower {
 public:
  Follower(Context& ctx, const Model& part, Communicator& ranks)
      : ctx_(ctx), part_(part), ranks_(ranks) {}

  void run(MessageReader& message);

 private:
  PagePool& pool_for(PoolId id, const PoolSizes& sizes);
  // Grows to what is needed.
  static char* room(Buffer& buffer, std::int64_t bytes, Device device) {
    if (buffer.bytes() < bytes) buffer = Buffer(2 * bytes, device);
    return static_cast<char*>(buffer.data());
  }

  Context& ctx_;
  const Model& part_;
  Communicator& ranks_;
  std::map<PoolId, std::unique_ptr<PagePool>> pools_;
  Buffer host_block_, device_block_, drawn_;
};

PagePool& Follower::pool_for(PoolId id, const PoolSizes& sizes) {
  std::unique_ptr<PagePool>& pool = pools_[id];
  if (!pool) {
    pool = std::make_unique<PagePool>(ctx_, PagePoolOptions{.layers = sizes.layers,
                                                            .kv_heads = sizes.kv_heads,
                                                            .head_dim = sizes.head_dim,
                                                            .dtype = sizes.dtype,
                                                            .pages = sizes.pages,
                                                            .page_size = sizes.page_size,
                                                            .prefix_cache = false,
                                                            .watcher = part_.watch_pool()});
  }
  return *pool;
}

void Follower::run(MessageReader& message) {
  for (auto ended = message.get<std::ptrdiff_t>(); ended > 0; --ended) {
    pools_.erase(message.get<PoolId>());
  }
  const auto id = message.get<PoolId>();
  PagePool& pool = pool_for(id, message.get<PoolSizes>());
  for (auto copies = message.get<std::ptrdiff_t>(); copies > 0; --copies) {
    const auto copy = message.get<PageCopy>();
    if (pool.options().share().size > 1) {
      copy_spread_page(ctx_, ranks_, pool, copy);
    } else {
      pool.copy_page(ctx_, copy.from, copy.to);
    }
  }
  const bool wants_logits = message.get<bool>();
  const auto largest_logits = message.get<std::int64_t>();
  const bool observes = message.get<bool>();
  const auto draws = message.get<std::int64_t>(), bytes = message.get<std::int64_t>();
  const bool on_cpu = ctx_.device().is_cpu();
  char* host = room(host_block_, bytes, Device::cpu());
  char* block = on_cpu ? host : room(device_block_, bytes, ctx_.device());
  CacheStep step = read_step(message, pool, block);
  step.host_block = host;
  step.device_block = block;
  const auto contents = message.take(static_cast<std::size_t>(bytes));
  std::memcpy(host, contents.data(), contents.size());
  if (!on_cpu) copy_bytes(ctx_, block, ctx_.device(), host, Device::cpu(), bytes);
  ForwardArgs args{.step = &step, .largest_logits = largest_logits};
  if (draws >= 0) {
    char* drawn = room(drawn_, std::max<std::int64_t>(draws, 1) * 4, ctx_.device());
    args.drawn = Tensor(static_cast<void*>(drawn), DType::i32, {draws}, ctx_.device());
    ranks_.broadcast(ctx_, args.drawn, 0);
  }
  Workspace::Frame frame(ctx_.workspace());
  if (wants_logits) args.logits = frame.take(DType::f32, {step.logits, part_.config().vocab});
  // Rank 0 watches; the rows must be the same here.
  if (observes) args.observe = [](std::int64_t, const Tensor&) {};
  part_.forward(ctx_, args);
}

}  // namespace

std::unique_ptr<Model> lead(std::unique_ptr<Model> part, Communicator& ranks,
                            parallel::ControlChannel& channel) {
  return std::make_unique<LeadingModel>(std::move(part), ranks, channel);
}

void end_following(parallel::ControlChannel& channel) {
  MessageWriter message;
  message.put(Order::end);
  send_message(channel, message);
}

void follow(Context& ctx, const Model& part, Communicator& ranks,
            parallel::ControlChannel& channel) {
  Follower follower(ctx, part, ranks);
  std::vector<std::byte> bytes;
  while (true) {
    receive_message(channel, bytes);
    MessageReader message(bytes);
    if (message.get<Order>() == Order::end) return;
    follower.run(message);
  }
}

}  // namespace tessera::model
