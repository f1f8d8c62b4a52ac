#include "tessera/buffer.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/checked.h"
#include "core/cuda_runtime.h"
#include "core/device_lost.h"
#include "tessera/context.h"

namespace tessera {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;

// Large blocks lie on huge pages where the system has them: weights stream up to twice as fast, as
// the hardware's prefetchers stop at every page's end.
void* allocate_host(std::int64_t bytes) {
  const std::int64_t alignment = bytes >= kHugePage ? kHugePage : Buffer::kAlignment;
  const auto rounded = static_cast<std::size_t>(checked_align(bytes, alignment));
  void* data = std::aligned_alloc(static_cast<std::size_t>(alignment), rounded);
  if (!data) {
    fail(ErrorCode::out_of_memory, "{:.1f} MiB of host memory were asked for and could not be had",
         static_cast<double>(bytes) / (1 << 20));
  }
#if defined(__linux__)
  if (bytes >= kHugePage) madvise(data, rounded, MADV_HUGEPAGE);  // a wish: it may come to nothing
#endif
  return data;
}

}  // namespace

Buffer::Buffer(std::int64_t bytes, Device device) : bytes_(bytes), device_(device) {
  if (bytes < 0) fail(ErrorCode::invalid_argument, "a buffer of {} bytes was asked for", bytes);
  if (bytes == 0) return;
  data_ = device.is_cpu() ? allocate_host(bytes) : cuda::allocate(bytes, device);
}

Buffer::Buffer(DType dtype, std::initializer_list<std::int64_t> shape, Device device)
    : Buffer(Tensor(nullptr, dtype, shape).bytes(), device) {}

Buffer::~Buffer() { release(); }

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(other.device_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
  }
  return *this;
}

void Buffer::release() noexcept {
  if (!data_) return;
  if (device_.is_cpu()) {
    std::free(data_);
  } else {
    cuda::release(data_, device_);
  }
}

Tensor Buffer::tensor(DType dtype, std::initializer_list<std::int64_t> shape) const {
  Tensor result(data_, dtype, shape, device_);
  if (result.bytes() > bytes_) {
    fail(ErrorCode::invalid_argument, "{} does not fit into a buffer of {} bytes",
         to_string(result), bytes_);
  }
  return result;
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
  ctx.require_not_lost();
  try {
    if (from_device.is_cpu() && ctx.device().is_cuda()) {
      cuda::upload(ctx.cuda_state(), to, from, bytes);
    } else {
      cuda::copy(to, to_device, from, from_device, bytes, ctx.stream());
    }
  } catch (const DeviceLost& error) {
    if (ctx.device().is_cpu()) throw;  // it can do without the GPU
    ctx.lose(error.what_failed());
  }
}

}  // namespace tessera
