// The kernel timer by CUPTI. The library is opened at run time and used through the few functions
// below; a build without its header, or a machine without the library, times by events instead.
//
// Each op call is a label ("external id") of the launches inside of it. CUPTI returns kernels with
// the number of their launch, and labels with the number of the API call that they precede. It
// writes a label only before the record of an API call, so those records are requested as well. The
// runtime's calls are our launches, the driver's those of cuBLASLt.
#include "cuda/runtime/kernel_timer.h"

#if __has_include(<cupti.h>)
#define TESSERA_HAVE_CUPTI 1
#include <cupti.h>
#else
#define TESSERA_HAVE_CUPTI 0
#endif

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "core/fail.h"
#include "core/shared_library.h"
#include "cuda/runtime/op_names.h"

namespace tessera::cuda {

#if TESSERA_HAVE_CUPTI
namespace {

struct Cupti {
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_label = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_label = nullptr;
  std::string missing;  // why it cannot be used
};

Cupti open_cupti() {
  Cupti cupti;
  const std::string versioned = fmt::format("libcupti.so.{}", CUDART_VERSION / 1000);
  SharedLibrary library({versioned, "libcupti.so",
                         "/usr/local/cuda/extras/CUPTI/lib64/" + versioned,
                         "/usr/local/cuda/lib64/" + versioned});
  library.find(cupti.enable, "cuptiActivityEnable");
  library.find(cupti.disable, "cuptiActivityDisable");
  library.find(cupti.register_callbacks, "cuptiActivityRegisterCallbacks");
  library.find(cupti.flush, "cuptiActivityFlushAll");
  library.find(cupti.next_record, "cuptiActivityGetNextRecord");
  library.find(cupti.push_label, "cuptiActivityPushExternalCorrelationId");
  library.find(cupti.pop_label, "cuptiActivityPopExternalCorrelationId");
  cupti.missing = library.problem();
  return cupti;
}

const Cupti& cupti() {
  static const Cupti opened = open_cupti();
  return opened;
}

struct LaunchedKernel {
  KernelSpan span;
  std::uint32_t launch;
};

// CUPTI passes buffers of records to functions without a user argument, on its own thread.
struct Collected {
  std::mutex mutex;
  std::vector<LaunchedKernel> kernels;
  std::unordered_map<std::uint32_t, std::int64_t> call_of_launch;
};
Collected& collected() {
  static Collected records;
  return records;
}

constexpr CUpti_ExternalCorrelationKind kLabels = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
constexpr CUpti_ActivityKind kKernels = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
constexpr CUpti_ActivityKind kLaunchLabels = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
constexpr std::array kKinds{kKernels, kLaunchLabels, CUPTI_ACTIVITY_KIND_RUNTIME,
                            CUPTI_ACTIVITY_KIND_DRIVER};

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  constexpr std::size_t kBytes = std::size_t{4} << 20, kAlignment = 64;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBytes));
  *size = *buffer == nullptr ? 0 : kBytes;
  *max_records = 0;  // as many as fit
}

void keep(const CUpti_Activity* record, Collected& records) {
  if (record->kind == kKernels) {
    // Up to the fields read here, records have the same layout in CUDA 12 and 13.
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
    records.kernels.push_back({.span = {.name = kernel->name != nullptr ? kernel->name : "",
                                        .start_ns = static_cast<std::int64_t>(kernel->start),
                                        .end_ns = static_cast<std::int64_t>(kernel->end)},
                               .launch = kernel->correlationId});
  } else if (record->kind == kLaunchLabels) {
    const auto* label = reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
    if (label->externalKind == kLabels) {
      records.call_of_launch[label->correlationId] = static_cast<std::int64_t>(label->externalId);
    }
  }
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid) {
  Collected& records = collected();
  const std::lock_guard lock(records.mutex);
  CUpti_Activity* record = nullptr;
  while (cupti().next_record(buffer, valid, &record) == CUPTI_SUCCESS) keep(record, records);
  std::free(buffer);
}

class CuptiTimer final : public KernelTimer, public OpListener {
 public:
  explicit CuptiTimer(Context& ctx) : ctx_(ctx) {
    ctx_.synchronize();
    clear();
    require(cupti().register_callbacks(give_buffer, take_buffer));
    for (const CUpti_ActivityKind kind : kKinds) require(cupti().enable(kind));
    before_ = set_op_listener(this);
    attached_ = true;
  }
  ~CuptiTimer() override { detach(); }

  // The previous listener is still called.
  void begin(const char* op) noexcept override {
    if (before_ != nullptr) before_->begin(op);
    cupti().push_label(kLabels, static_cast<std::uint64_t>(calls_++));
  }
  void end() noexcept override {
    std::uint64_t last = 0;
    cupti().pop_label(kLabels, &last);
    if (before_ != nullptr) before_->end();
  }

  std::vector<KernelSpan> stop() override {
    ctx_.synchronize();
    detach();
    Collected& records = collected();
    const std::lock_guard lock(records.mutex);
    std::vector<KernelSpan> spans;
    for (LaunchedKernel& kernel : records.kernels) {
      const auto found = records.call_of_launch.find(kernel.launch);
      if (found != records.call_of_launch.end()) kernel.span.call = found->second;
      spans.push_back(std::move(kernel.span));
    }
    std::sort(spans.begin(), spans.end(),
              [](const KernelSpan& a, const KernelSpan& b) { return a.start_ns < b.start_ns; });
    return spans;
  }

 private:
  static void clear() {
    Collected& records = collected();
    const std::lock_guard lock(records.mutex);
    records.kernels.clear();
    records.call_of_launch.clear();
  }
  static void require(CUptiResult result) {
    if (result == CUPTI_SUCCESS) return;
    fail(ErrorCode::device,
         "CUPTI refuses to time kernels (error {}); is another profiler attached?",
         static_cast<int>(result));
  }
  void detach() {
    if (!attached_) return;
    attached_ = false;
    set_op_listener(before_);
    cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    for (const CUpti_ActivityKind kind : kKinds) cupti().disable(kind);
  }

  Context& ctx_;
  OpListener* before_ = nullptr;
  bool attached_ = false;
  std::int64_t calls_ = 0;
};

}  // namespace

std::string why_no_cupti() { return cupti().missing; }

std::unique_ptr<KernelTimer> make_kernel_timer(Context& ctx) {
  if (!why_no_cupti().empty()) return make_event_timer(ctx);
  return std::make_unique<CuptiTimer>(ctx);
}

#else

std::string why_no_cupti() { return "this build was made without CUPTI's header"; }
std::unique_ptr<KernelTimer> make_kernel_timer(Context& ctx) { return make_event_timer(ctx); }

#endif

}  // namespace tessera::cuda
