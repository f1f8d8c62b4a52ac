#include "core/download.h"

#include <cstring>

#include "core/cuda_runtime.h"
#include "core/device_lost.h"
#include "core/fail.h"
#include "tessera/context.h"

namespace tessera {

Download::Download(const Context& ctx, std::int64_t max_bytes) : max_bytes_(max_bytes) {
  if (ctx.device().is_cpu()) {
    host_.resize(static_cast<std::size_t>(max_bytes));
  } else {
    gpu_ = cuda::make_download(ctx.device(), max_bytes);
  }
}

void Download::start(Context& ctx, const void* from, std::int64_t bytes) {
  if (bytes < 0 || bytes > max_bytes_) {
    fail(ErrorCode::invalid_argument, "a download of {} bytes was asked for; this one takes 0..{}",
         bytes, max_bytes_);
  }
  if (!gpu_) {
    std::memcpy(host_.data(), from, static_cast<std::size_t>(bytes));
    return;
  }
  ctx.require_not_lost();
  try {
    gpu_->start(ctx.stream(), from, bytes);
  } catch (const DeviceLost& error) {
    ctx.lose(error.what_failed());
  }
}

void* Download::target() { return gpu_ ? gpu_->target() : host_.data(); }

void Download::arrives(Context& ctx) {
  if (!gpu_) return;
  ctx.require_not_lost();
  try {
    gpu_->arrives(ctx.stream());
  } catch (const DeviceLost& error) {
    ctx.lose(error.what_failed());
  }
}

const void* Download::wait(Context& ctx) {
  if (!gpu_) return host_.data();
  ctx.require_not_lost();
  try {
    return gpu_->wait();
  } catch (const DeviceLost& error) {
    ctx.lose(error.what_failed());
  }
}

}  // namespace tessera
