#include "parallel/nccl.h"

#include <nccl.h>

#include <utility>

#include "core/fail.h"
#include "core/shared_library.h"
#include "core/side_stream.h"
#include "parallel/check.h"
#include "tessera/buffer.h"

namespace tessera::parallel {
namespace {

// The functions of libnccl.so.2 that are used here.
struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  std::string problem;  // empty: all of them were found

  Library() {
    SharedLibrary library({"libnccl.so.2"});
    library.find(get_version, "ncclGetVersion");
    library.find(get_error_string, "ncclGetErrorString");
    library.find(get_unique_id, "ncclGetUniqueId");
    library.find(comm_init_rank, "ncclCommInitRank");
    library.find(comm_destroy, "ncclCommDestroy");
    library.find(all_reduce, "ncclAllReduce");
    library.find(all_gather, "ncclAllGather");
    library.find(reduce_scatter, "ncclReduceScatter");
    library.find(broadcast, "ncclBroadcast");
    library.find(send, "ncclSend");
    library.find(receive, "ncclRecv");
    library.find(group_start, "ncclGroupStart");
    library.find(group_end, "ncclGroupEnd");
    problem = library.problem();
  }
};

// Opened once, like every shared library of a program.
const Library& library() {
  static const Library opened;
  return opened;
}

void check(const char* call, ncclResult_t result) {
  if (result == ncclSuccess) return;
  fail(ErrorCode::device, "{}: NCCL says: {}", call, library().get_error_string(result));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    default:
      return ncclUint8;  // bytes: what is not summed
  }
}

// A message on the second stream. Waiting for it orders the streams; the host does not wait.
class OnTheSide final : public Communicator::Pending {
 public:
  OnTheSide(SideStream& side, Context& ctx) : side_(side), ctx_(ctx) {}
  ~OnTheSide() override {
    try {
      join();
    } catch (...) {  // a broken device reports it at the next call
    }
  }
  void wait() override { join(); }

 private:
  void join() {
    if (!joined_) side_.join(ctx_);
    joined_ = true;
  }

  SideStream& side_;
  Context& ctx_;
  bool joined_ = false;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(ncclComm_t comm, int rank, int size, Device device)
      : Communicator(rank, size), comm_(comm), side_(cuda::make_side_stream(device)) {}
  ~NcclCommunicator() override { library().comm_destroy(comm_); }

  std::string_view name() const override { return "NCCL"; }

  void all_reduce(Context& ctx, const Tensor& data) override {
    check_summable("all_reduce", data);
    check("all_reduce", library().all_reduce(data.data, data.data, elements(data),
                                             type_of(data.dtype), ncclSum, comm_, stream(ctx)));
  }
  void all_gather(Context& ctx, const Tensor& part, const Tensor& whole) override {
    check_whole("all_gather", part, whole, size_);
    check("all_gather",
          library().all_gather(part.data, whole.data, bytes(part), ncclUint8, comm_, stream(ctx)));
  }
  void reduce_scatter(Context& ctx, const Tensor& whole, const Tensor& part) override {
    check_summable("reduce_scatter", whole);
    check_whole("reduce_scatter", part, whole, size_);
    check("reduce_scatter",
          library().reduce_scatter(whole.data, part.data, elements(part), type_of(part.dtype),
                                   ncclSum, comm_, stream(ctx)));
  }
  void broadcast(Context& ctx, const Tensor& data, int root) override {
    check_contiguous("broadcast", data);
    check_peer("broadcast", root, size_);
    check("broadcast", library().broadcast(data.data, data.data, bytes(data), ncclUint8, root,
                                           comm_, stream(ctx)));
  }
  void send(Context& ctx, const Tensor& data, int to) override {
    check_contiguous("send", data);
    check_other("send", to, rank_, size_);
    check("send", library().send(data.data, bytes(data), ncclUint8, to, comm_, stream(ctx)));
  }
  void receive(Context& ctx, const Tensor& data, int from) override {
    check_contiguous("receive", data);
    check_other("receive", from, rank_, size_);
    check("receive",
          library().receive(data.data, bytes(data), ncclUint8, from, comm_, stream(ctx)));
  }
  // On the second stream, so that the Context can compute meanwhile.
  std::unique_ptr<Pending> start_exchange(Context& ctx, const Tensor& sent, int to,
                                          const Tensor& received, int from) override {
    check_contiguous("start_exchange", sent);
    check_contiguous("start_exchange", received);
    check_peer("start_exchange", to, size_);
    check_peer("start_exchange", from, size_);
    side_->begin(ctx);
    const auto side = static_cast<cudaStream_t>(side_->stream());
    check("start_exchange", library().group_start());
    const ncclResult_t first = library().send(sent.data, bytes(sent), ncclUint8, to, comm_, side);
    const ncclResult_t second =
        library().receive(received.data, bytes(received), ncclUint8, from, comm_, side);
    const ncclResult_t end = library().group_end();  // a group that began must end
    for (const ncclResult_t result : {first, second, end}) check("start_exchange", result);
    side_->end();
    return std::make_unique<OnTheSide>(*side_, ctx);
  }
  // Sums one number and waits for it.
  void barrier(Context& ctx) override {
    const Buffer one(DType::f32, {1}, ctx.device());
    const float zero = 0.f;
    copy_bytes(ctx, one.data(), ctx.device(), &zero, Device::cpu(), sizeof zero);
    all_reduce(ctx, one.tensor());
    ctx.synchronize();
  }

 private:
  static cudaStream_t stream(const Context& ctx) { return static_cast<cudaStream_t>(ctx.stream()); }
  static std::size_t elements(const Tensor& t) { return static_cast<std::size_t>(t.numel()); }
  static std::size_t bytes(const Tensor& t) { return static_cast<std::size_t>(t.bytes()); }

  ncclComm_t comm_;
  std::unique_ptr<SideStream> side_;
};

}  // namespace

NcclInfo nccl_info() {
  if (!library().problem.empty()) return {true, false, library().problem};
  int version = 0;
  library().get_version(&version);
  return {true, true,
          fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100)};
}

std::unique_ptr<Communicator> make_nccl(Context& ctx, Communicator& control) {
  if (!ctx.device().is_cuda()) {
    fail(ErrorCode::invalid_argument, "NCCL connects GPUs, but the Context is on {}",
         to_string(ctx.device()));
  }
  if (!library().problem.empty()) {
    fail(ErrorCode::unsupported, "several GPUs need NCCL: {}", library().problem);
  }
  ncclUniqueId id{};
  if (control.rank() == 0) check("ncclGetUniqueId", library().get_unique_id(&id));
  Context host({.threads = 1});
  control.broadcast(host, Tensor(static_cast<void*>(&id), DType::u8, {sizeof id}), 0);
  ncclComm_t comm = nullptr;
  // NCCL uses the thread's current GPU.
  cuda::with_device(ctx.device(), [&] {
    check("ncclCommInitRank", library().comm_init_rank(&comm, control.size(), id, control.rank()));
  });
  return std::make_unique<NcclCommunicator>(comm, control.rank(), control.size(), ctx.device());
}

}  // namespace tessera::parallel
