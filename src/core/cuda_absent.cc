// The CUDA runtime of a build without CUDA: no devices, and an error that says how to get CUDA.
#include "core/backend_state.h"
#include "core/captured_graph.h"
#include "core/cuda_runtime.h"
#include "core/download.h"
#include "core/fail.h"
#include "core/side_stream.h"

namespace tessera::cuda {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorCode::unsupported,
       "this build of Tessera has no CUDA: use the CPU, or build with -DTESSERA_CUDA=ON");
}

}  // namespace

std::unique_ptr<BackendState> make_state(Device, ThreadPool&) { refuse(); }
void* stream_of(const BackendState&) { refuse(); }
std::vector<DeviceInfo> list_devices() { return {}; }
CudaInfo describe() { return {.status = "this build has no CUDA"}; }
DeviceMemory memory(Device) { refuse(); }
void* allocate(std::int64_t, Device) { refuse(); }
void release(void*, Device) noexcept {}
void synchronize(void*, Device) { refuse(); }
void upload(BackendState&, void*, const void*, std::int64_t) { refuse(); }
void copy(void*, Device, const void*, Device, std::int64_t, void*) { refuse(); }
std::unique_ptr<BackendDownload> make_download(Device, std::int64_t) { refuse(); }
void begin_op(const char*) noexcept {}
void end_op() noexcept {}
std::unique_ptr<BackendGraph> capture(Context&, FunctionRef<void()>, const BackendGraph*) {
  refuse();
}
BranchStream begin_branch(Context&) { refuse(); }
void end_branch(Context&) { refuse(); }
void join_branch(Context&) { refuse(); }
void check_counters(BackendState&) { refuse(); }
std::unique_ptr<SideStream> make_side_stream(Device) { refuse(); }
void with_device(Device, FunctionRef<void()>) { refuse(); }

}  // namespace tessera::cuda
