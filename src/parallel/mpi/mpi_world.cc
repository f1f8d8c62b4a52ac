// Communicators on MPI, for tensors on the CPU. The bytes of a message may exceed an int, so long
// messages are sent in pieces. Sums are made here and not by MPI, whose order of summation depends
// on the length of a message.
#include "parallel/mpi/mpi_world.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "core/checked.h"
#include "core/fail.h"
#include "parallel/check.h"
#include "parallel/ordered_sum.h"

namespace tessera::parallel {
namespace {

constexpr std::int64_t kPiece = 1 << 30;  // bytes of a message; MPI counts them in an int
// Up to this many bytes of all ranks together, every rank sends all of its data and sums
// everything: one exchange. Beyond that, each rank sums a part: two smaller exchanges.
constexpr std::int64_t kSmallSum = 64 * 1024;
constexpr int kTag = 7;

// Calls message(first byte, bytes) for each piece.
template <typename F>
void in_pieces(void* data, std::int64_t bytes, F&& message) {
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    message(static_cast<char*>(data) + at, static_cast<int>(std::min(kPiece, bytes - at)));
  }
}

class Requests final : public Communicator::Pending {
 public:
  ~Requests() override { wait_all(); }
  void wait() override { wait_all(); }

  void send(MPI_Comm comm, const void* data, std::int64_t bytes, int to) {
    in_pieces(const_cast<void*>(data), bytes, [&](char* piece, int n) {
      MPI_Isend(piece, n, MPI_BYTE, to, kTag, comm, &requests_.emplace_back());
    });
  }
  void receive(MPI_Comm comm, void* data, std::int64_t bytes, int from) {
    in_pieces(data, bytes, [&](char* piece, int n) {
      MPI_Irecv(piece, n, MPI_BYTE, from, kTag, comm, &requests_.emplace_back());
    });
  }

 private:
  void wait_all() {
    if (requests_.empty()) return;
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    requests_.clear();
  }
  std::vector<MPI_Request> requests_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, int rank, int size) : Communicator(rank, size), comm_(comm) {}

  std::string_view name() const override { return "MPI"; }

  void all_reduce(Context&, const Tensor& data) override {
    check_summable("all_reduce", on_cpu("all_reduce", data));
    const std::int64_t n = data.numel();
    if (size_ == 1 || n == 0) return;
    if (data.bytes() * size_ <= kSmallSum) {
      char* all = scratch(data.bytes() * size_);
      gather(data.data, data.bytes(), all);
      ordered_sum(data.dtype, all, n, size_, n, data.data);
      return;
    }
    sum_in_parts(data, n);
  }

  void all_gather(Context&, const Tensor& part, const Tensor& whole) override {
    check_whole("all_gather", on_cpu("all_gather", part), whole, size_);
    gather(part.data, part.bytes(), whole.data);
  }

  void reduce_scatter(Context&, const Tensor& whole, const Tensor& part) override {
    check_summable("reduce_scatter", on_cpu("reduce_scatter", whole));
    check_whole("reduce_scatter", part, whole, size_);
    const std::int64_t n = part.numel(), bytes = part.bytes();
    char* mine = scratch(bytes * size_);
    Requests requests;
    for (int r = 0; r < size_; ++r) {
      const char* from = static_cast<const char*>(whole.data) + r * bytes;
      if (r == rank_) {
        std::memcpy(mine + r * bytes, from, static_cast<std::size_t>(bytes));
        continue;
      }
      requests.receive(comm_, mine + r * bytes, bytes, r);
      requests.send(comm_, from, bytes, r);
    }
    requests.wait();
    ordered_sum(part.dtype, mine, n, size_, n, part.data);
  }

  void broadcast(Context&, const Tensor& data, int root) override {
    check_contiguous("broadcast", on_cpu("broadcast", data));
    check_peer("broadcast", root, size_);
    in_pieces(data.data, data.bytes(),
              [&](char* piece, int n) { MPI_Bcast(piece, n, MPI_BYTE, root, comm_); });
  }

  void send(Context&, const Tensor& data, int to) override {
    check_contiguous("send", on_cpu("send", data));
    check_other("send", to, rank_, size_);
    Requests requests;
    requests.send(comm_, data.data, data.bytes(), to);
  }

  void receive(Context&, const Tensor& data, int from) override {
    check_contiguous("receive", on_cpu("receive", data));
    check_other("receive", from, rank_, size_);
    Requests requests;
    requests.receive(comm_, data.data, data.bytes(), from);
  }

  std::unique_ptr<Pending> start_exchange(Context&, const Tensor& sent, int to,
                                          const Tensor& received, int from) override {
    check_contiguous("start_exchange", on_cpu("start_exchange", sent));
    check_contiguous("start_exchange", on_cpu("start_exchange", received));
    check_peer("start_exchange", to, size_);
    check_peer("start_exchange", from, size_);
    auto requests = std::make_unique<Requests>();
    requests->receive(comm_, received.data, received.bytes(), from);
    requests->send(comm_, sent.data, sent.bytes(), to);
    return requests;
  }

  void barrier(Context&) override { MPI_Barrier(comm_); }

 private:
  static const Tensor& on_cpu(const char* call, const Tensor& tensor) {
    if (tensor.device.is_cpu()) return tensor;
    fail(ErrorCode::invalid_argument,
         "{}: MPI sends tensors of the CPU, got one on {}; NCCL is for GPUs", call,
         to_string(tensor.device));
  }

  char* scratch(std::int64_t bytes) {
    if (std::ssize(scratch_) < bytes) scratch_.resize(static_cast<std::size_t>(bytes));
    return scratch_.data();
  }

  // all[r] = the bytes of rank r.
  void gather(const void* data, std::int64_t bytes, void* all) {
    if (bytes <= kPiece) {
      const int n = static_cast<int>(bytes);
      MPI_Allgather(data, n, MPI_BYTE, all, n, MPI_BYTE, comm_);
      return;
    }
    for (int r = 0; r < size_; ++r) {
      char* to = static_cast<char*>(all) + r * bytes;
      if (r == rank_) std::memcpy(to, data, static_cast<std::size_t>(bytes));
      in_pieces(to, bytes, [&](char* piece, int n) { MPI_Bcast(piece, n, MPI_BYTE, r, comm_); });
    }
  }

  // Rank r sums elements [begin(r), begin(r + 1)) of all, and hands the sums to all.
  void sum_in_parts(const Tensor& data, std::int64_t n) {
    const std::int64_t width = size_of(data.dtype);
    const auto begin = [&](int r) { return n * r / size_; };
    const auto at = [&](int r) { return static_cast<char*>(data.data) + begin(r) * width; };
    const auto bytes = [&](int r) { return (begin(r + 1) - begin(r)) * width; };
    const std::int64_t own = bytes(rank_);
    char* mine = scratch(own * size_);
    Requests requests;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) {
        std::memcpy(mine + r * own, at(r), static_cast<std::size_t>(own));
        continue;
      }
      requests.receive(comm_, mine + r * own, own, r);
      requests.send(comm_, at(r), bytes(r), r);
    }
    requests.wait();
    ordered_sum(data.dtype, mine, own / width, size_, own / width, at(rank_));
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      requests.receive(comm_, at(r), bytes(r), r);
      requests.send(comm_, at(rank_), own, r);
    }
  }

  MPI_Comm comm_;
  std::vector<char> scratch_;
};

class World final : public MpiWorld {
 public:
  World() {
    int provided = 0;
    // The engine's thread communicates with the other ranks, and no two threads do so at once.
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    if (provided < MPI_THREAD_SERIALIZED) {
      MPI_Finalize();
      fail(ErrorCode::unsupported,
           "this MPI cannot be called by more than one thread of a process");
    }
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    communicator_ = std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, rank, size);
    MPI_Comm local = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
    MPI_Comm_rank(local, &local_rank_);
    MPI_Comm_size(local, &local_size_);
    MPI_Comm_free(&local);
  }
  ~World() override { MPI_Finalize(); }

  Communicator& communicator() override { return *communicator_; }
  int ranks_on_this_machine() override { return local_size_; }
  int rank_on_this_machine() override { return local_rank_; }

  void receive_bytes(void* data, std::int64_t bytes) override {
    using Clock = std::chrono::steady_clock;
    // Between two steps of a stream there is no time to sleep.
    constexpr std::chrono::milliseconds kBusy{2};
    constexpr std::chrono::microseconds kNap{200};
    in_pieces(data, bytes, [&](char* piece, int n) {
      MPI_Request request;
      MPI_Ibcast(piece, n, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
      const Clock::time_point begin = Clock::now();
      for (int done = 0; done == 0;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done == 0 && Clock::now() - begin > kBusy) std::this_thread::sleep_for(kNap);
      }
    });
  }
  // The other side of receive_bytes(): the two kinds of broadcast do not match each other.
  void send_bytes(void* data, std::int64_t bytes) override {
    in_pieces(data, bytes, [&](char* piece, int n) {
      MPI_Request request;
      MPI_Ibcast(piece, n, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
  }

  void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();  // MPI_Abort does not return
  }

 private:
  std::unique_ptr<MpiCommunicator> communicator_;
  int local_rank_ = 0, local_size_ = 1;
};

}  // namespace

MpiInfo mpi_info() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return {true, version.substr(0, version.find_first_of(",\n"))};  // without the place of its build
}

std::unique_ptr<MpiWorld> MpiWorld::start() { return std::make_unique<World>(); }

}  // namespace tessera::parallel
