#include "tessera/buffer.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/backend_state.h"
#include "core/checked.h"
#include "core/cuda_runtime.h"
#include "core/device_lost.h"
#include "core/huge_pages.h"
#include "core/memory_ledger.h"
#include "core/size_text.h"
#include "core/workspace.h"
#include "tessera/context.h"

namespace tessera {
namespace {

// From this size on, a block is on huge pages if the system has them: on its own, or in a slab with
// others. Weights then stream up to twice as fast, because the hardware's prefetchers stop at the
// end of every page. Smaller blocks are many and short-lived.
constexpr std::int64_t kSmallestOnHugePages = 64 << 10;

bool is_shared_size([[maybe_unused]] std::int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;  // a block of its own, so that its end is watched
#else
  return bytes >= kSmallestOnHugePages && bytes < HugePages::kHugePage;
#endif
}

// Never destroyed: Buffers may live until the end of the program.
HugePages& shared_pages() {
  static HugePages& pages = *new HugePages;
  return pages;
}

void* allocate_host(std::int64_t bytes) {
  process_ledger().take(bytes);
  if (is_shared_size(bytes)) {
    if (void* data = shared_pages().take(bytes)) return data;
  }
  const bool is_large = bytes >= HugePages::kHugePage;
  const std::int64_t alignment = is_large ? HugePages::kHugePage : Buffer::kAlignment;
  const std::int64_t rounded = checked_align(bytes, alignment);
  void* data =
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
  if (!data) {
    process_ledger().give_back(bytes);
    fail(ErrorCode::out_of_memory,
         "{} of memory were requested and the system has refused them: it grants this process less "
         "than the machine has (ulimit -v)",
         size_text(bytes));
  }
  if (is_large) ask_for_huge_pages(data, rounded);
  return data;
}

void release_host(void* data, std::int64_t bytes) noexcept {
  if (!is_shared_size(bytes) || !shared_pages().give_back(data, bytes)) std::free(data);
  process_ledger().give_back(bytes);
}

}  // namespace

Buffer::Buffer(DType dtype, std::span<const std::int64_t> shape, Device device)
    : tensor_(nullptr, dtype, shape, device), bytes_(tensor_.bytes()) {
  if (bytes_ == 0) return;
  tensor_.data = device.is_cpu() ? allocate_host(bytes_) : cuda::allocate(bytes_, device);
}

Buffer::Buffer(DType dtype, std::initializer_list<std::int64_t> shape, Device device)
    : Buffer(dtype, std::span(shape.begin(), shape.size()), device) {}

Buffer::Buffer(std::int64_t bytes, Device device) : Buffer(DType::u8, {bytes}, device) {}

Buffer::~Buffer() { release(); }

Buffer::Buffer(Buffer&& other) noexcept
    : tensor_(std::exchange(other.tensor_, {})), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    tensor_ = std::exchange(other.tensor_, {});
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Buffer::release() noexcept {
  if (!data()) return;
  if (device().is_cpu()) {
    release_host(data(), bytes_);
  } else {
    cuda::release(data(), device());
  }
}

Tensor Buffer::tensor(DType dtype, std::span<const std::int64_t> shape) const {
  Tensor result(data(), dtype, shape, device());
  if (result.bytes() > bytes_) {
    fail(ErrorCode::invalid_argument, "{} does not fit into a buffer of {} bytes",
         to_string(result), bytes_);
  }
  return result;
}

Tensor Buffer::tensor(DType dtype, std::initializer_list<std::int64_t> shape) const {
  return tensor(dtype, std::span(shape.begin(), shape.size()));
}

void copy_bytes(Context& ctx, void* to, Device to_device, const void* from, Device from_device,
                std::int64_t bytes) {
  if (bytes < 0 || (bytes > 0 && (!to || !from))) {
    fail(ErrorCode::invalid_argument, "copy of {} bytes: a null pointer or a negative size", bytes);
  }
  if (bytes == 0) return;
  if (to_device.is_cpu() && from_device.is_cpu()) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  const OneUser::Use use(ctx.workspace().user(), "copy_bytes");
  ctx.require_not_lost();
  try {
    if (from_device.is_cpu() && ctx.device().is_cuda()) {
      cuda::upload(*ctx.backend_state(), to, from, bytes);
    } else {
      cuda::copy(to, to_device, from, from_device, bytes, ctx.stream());
    }
  } catch (const DeviceLost& error) {
    if (ctx.device().is_cpu()) throw;  // it does not need the GPU
    ctx.lose(error.what_failed());
  }
}

}  // namespace tessera
