#include "support/thread_ranks.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/fail.h"
#include "parallel/check.h"
#include "parallel/ordered_sum.h"
#include "tessera/buffer.h"

namespace tessera::test {
namespace {

using Bytes = std::vector<char>;

// Where the ranks meet and exchange bytes.
class MeetingPlace {
 public:
  explicit MeetingPlace(int size) : brought_(static_cast<std::size_t>(size)) {}

  // Gives this rank's bytes, and returns those of all ranks.
  std::vector<Bytes> exchange(int rank, Bytes bytes) {
    brought_[static_cast<std::size_t>(rank)] = std::move(bytes);
    meet();
    std::vector<Bytes> all = brought_;
    meet();  // all ranks have read them
    return all;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    ++left_;
    changed_.notify_all();
  }

 private:
  void meet() {
    std::unique_lock lock(mutex_);
    const int meeting = meeting_;
    if (++here_ == std::ssize(brought_)) {
      here_ = 0;
      ++meeting_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return meeting_ != meeting || left_ > 0; });
    if (meeting_ == meeting) fail(ErrorCode::device, "another rank has ended");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bytes> brought_;
  std::ptrdiff_t here_ = 0;
  int meeting_ = 0, left_ = 0;
};

Bytes read(Context& ctx, const Tensor& tensor) {
  Bytes bytes(static_cast<std::size_t>(tensor.bytes()));
  copy_bytes(ctx, bytes.data(), Device::cpu(), tensor.data, tensor.device, tensor.bytes());
  ctx.synchronize();
  return bytes;
}
void write(Context& ctx, const Tensor& tensor, const char* bytes) {
  copy_bytes(ctx, tensor.data, tensor.device, bytes, Device::cpu(), tensor.bytes());
}

// Messages that are exchanged when they are sent, but written only in wait(): a rank that reads too
// early reads the old data.
class Arriving final : public Communicator::Pending {
 public:
  Arriving(Context& ctx, const Tensor& to, Bytes bytes)
      : ctx_(ctx), to_(to), bytes_(std::move(bytes)) {}
  ~Arriving() override { wait(); }
  void wait() override {
    if (!bytes_.empty()) write(ctx_, to_, bytes_.data());
    bytes_.clear();
  }

 private:
  Context& ctx_;
  Tensor to_;
  Bytes bytes_;
};

class ThreadCommunicator final : public Communicator, public parallel::ControlChannel {
 public:
  ThreadCommunicator(MeetingPlace& place, int rank, int size)
      : Communicator(rank, size), place_(place) {}

  std::string_view name() const override { return "threads"; }

  void all_reduce(Context& ctx, const Tensor& data) override {
    parallel::check_summable("all_reduce", data);
    write_sum(ctx, place_.exchange(rank_, read(ctx, data)), 0, data);
  }
  void all_gather(Context& ctx, const Tensor& part, const Tensor& whole) override {
    parallel::check_whole("all_gather", part, whole, size_);
    const std::vector<Bytes> all = place_.exchange(rank_, read(ctx, part));
    for (int r = 0; r < size_; ++r) write(ctx, whole.select(0, r), at(all, r).data());
  }
  void reduce_scatter(Context& ctx, const Tensor& whole, const Tensor& part) override {
    parallel::check_summable("reduce_scatter", whole);
    parallel::check_whole("reduce_scatter", part, whole, size_);
    write_sum(ctx, place_.exchange(rank_, read(ctx, whole)), rank_ * part.bytes(), part);
  }
  void broadcast(Context& ctx, const Tensor& data, int root) override {
    parallel::check_peer("broadcast", root, size_);
    const std::vector<Bytes> all =
        place_.exchange(rank_, rank_ == root ? read(ctx, data) : Bytes());
    if (rank_ != root) write(ctx, data, at(all, root).data());
  }
  // Between two ranks only, while others go on: for pages that are sent. These tests have two
  // ranks.
  void send(Context& ctx, const Tensor& data, int to) override {
    parallel::check_other("send", to, rank_, size_);
    require_two();
    place_.exchange(rank_, read(ctx, data));
  }
  void receive(Context& ctx, const Tensor& data, int from) override {
    parallel::check_other("receive", from, rank_, size_);
    require_two();
    write(ctx, data, at(place_.exchange(rank_, {}), from).data());
  }
  std::unique_ptr<Pending> start_exchange(Context& ctx, const Tensor& sent, int to,
                                          const Tensor& received, int from) override {
    parallel::check_peer("start_exchange", to, size_);
    parallel::check_peer("start_exchange", from, size_);
    std::vector<Bytes> all = place_.exchange(rank_, read(ctx, sent));
    return std::make_unique<Arriving>(ctx, received, std::move(at(all, from)));
  }
  void barrier(Context& ctx) override {
    ctx.synchronize();
    place_.exchange(rank_, {});
  }

  void send_bytes(void* data, std::int64_t bytes) override {
    const char* begin = static_cast<const char*>(data);
    place_.exchange(rank_, Bytes(begin, begin + bytes));
  }
  void receive_bytes(void* data, std::int64_t bytes) override {
    const std::vector<Bytes> all = place_.exchange(rank_, {});
    std::memcpy(data, all[0].data(), static_cast<std::size_t>(bytes));
  }
  void abort(int) override {
    std::fputs("a rank has called abort()\n", stderr);
    std::abort();
  }

 private:
  static Bytes& at(std::vector<Bytes>& all, int rank) {
    return all[static_cast<std::size_t>(rank)];
  }
  static const Bytes& at(const std::vector<Bytes>& all, int rank) {
    return all[static_cast<std::size_t>(rank)];
  }
  void require_two() const {
    if (size_ != 2) fail(ErrorCode::unsupported, "send and receive are for two threads here");
  }
  // The sum of the bytes of all ranks, from byte `begin` on.
  void write_sum(Context& ctx, const std::vector<Bytes>& all, std::int64_t begin,
                 const Tensor& to) const {
    const auto bytes = static_cast<std::size_t>(to.bytes());
    Bytes parts;
    for (const Bytes& one : all) {
      parts.insert(parts.end(), one.begin() + begin, one.begin() + begin + to.bytes());
    }
    Bytes sum(bytes);
    parallel::ordered_sum(to.dtype, parts.data(), to.numel(), size_, to.numel(), sum.data());
    write(ctx, to, sum.data());
  }

  MeetingPlace& place_;
};

}  // namespace

void run_ranks(int size, Device device, FunctionRef<void(const ThreadRank&)> work) {
  MeetingPlace place(size);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Context ctx({.device = device, .threads = 1, .graphs = false});
        ThreadCommunicator ranks(place, rank, size);
        work({ctx, ranks, ranks});
        ctx.synchronize();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      place.leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace tessera::test
