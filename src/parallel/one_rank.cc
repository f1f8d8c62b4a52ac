// A process alone: a sum is its own part, and nothing is sent.
#include "core/fail.h"
#include "parallel/check.h"
#include "tessera/buffer.h"
#include "tessera/communicator.h"

namespace tessera {
namespace {

class Arrived final : public Communicator::Pending {
 public:
  void wait() override {}
};

class OneRank final : public Communicator {
 public:
  OneRank() : Communicator(0, 1) {}

  std::string_view name() const override { return "one rank"; }
  void all_reduce(Context&, const Tensor& data) override {
    parallel::check_summable("all_reduce", data);
  }
  void all_gather(Context& ctx, const Tensor& part, const Tensor& whole) override {
    parallel::check_whole("all_gather", part, whole, 1);
    copy(ctx, part, whole);
  }
  void reduce_scatter(Context& ctx, const Tensor& whole, const Tensor& part) override {
    parallel::check_summable("reduce_scatter", whole);
    parallel::check_whole("reduce_scatter", part, whole, 1);
    copy(ctx, whole, part);
  }
  void broadcast(Context&, const Tensor& data, int root) override {
    parallel::check_contiguous("broadcast", data);
    parallel::check_peer("broadcast", root, 1);
  }
  void send(Context&, const Tensor&, int) override { refuse("send"); }
  void receive(Context&, const Tensor&, int) override { refuse("receive"); }
  std::unique_ptr<Pending> start_exchange(Context& ctx, const Tensor& sent, int to,
                                          const Tensor& received, int from) override {
    parallel::check_peer("start_exchange", to, 1);
    parallel::check_peer("start_exchange", from, 1);
    copy(ctx, sent, received);
    return std::make_unique<Arrived>();
  }
  void barrier(Context&) override {}

 private:
  [[noreturn]] static void refuse(const char* call) {
    fail(ErrorCode::invalid_argument, "{}: there is no other rank", call);
  }
  static void copy(Context& ctx, const Tensor& from, const Tensor& to) {
    copy_bytes(ctx, to.data, to.device, from.data, from.device, from.bytes());
  }
};

}  // namespace

std::unique_ptr<Communicator> one_rank() { return std::make_unique<OneRank>(); }

}  // namespace tessera
