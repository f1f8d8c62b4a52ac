#include "ops/op_scope.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/cache_dtype.h"
#include "core/checked.h"
#include "core/cuda_runtime.h"
#include "core/device_lost.h"

namespace tessera {
namespace {

// Bytes from the first element to the end of the last one, for non-negative strides.
std::int64_t extent_bytes(const Tensor& tensor) {
  std::int64_t last = 0;
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return 0;
    last = checked_add(last, checked_mul(tensor.shape[d] - 1, tensor.strides[d]));
  }
  return checked_mul(checked_add(last, 1), size_of(tensor.dtype));
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank && a.shape == b.shape &&
         a.strides == b.strides;
}

// No element is reached twice if each dimension's stride exceeds everything that the dimensions of
// smaller strides reach.
bool reaches_an_element_twice(const Tensor& t) {
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 0) return false;
  }
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] == 1) continue;
    std::int64_t reach = 0;
    for (int e = 0; e < t.rank; ++e) {
      const bool smaller = t.strides[e] < t.strides[d] || (t.strides[e] == t.strides[d] && e < d);
      if (smaller && t.shape[e] > 1) reach += t.strides[e] * (t.shape[e] - 1);
    }
    if (t.strides[d] <= reach) return true;
  }
  return false;
}

}  // namespace

void OpScope::input(const char* arg, const Tensor& t, std::initializer_list<DType> accepted) const {
  require(t.defined(), "{} was not given", arg);
  require(t.device == ctx_.device(), "{} is on {}, but the context runs on {}", arg, t.device,
          ctx_.device());
  if (std::find(accepted.begin(), accepted.end(), t.dtype) == accepted.end()) {
    std::vector<std::string_view> names;
    for (DType dtype : accepted) names.push_back(name(dtype));
    refuse("{} is {}; accepted: {}", arg, name(t.dtype), fmt::join(names, ", "));
  }
  for (int d = 0; d < t.rank; ++d) {
    require(t.shape[d] >= 0, "{} has a negative size in {}", arg, t);
    require(t.shape[d] <= 1 || t.strides[d] >= 0, "{} has a negative stride: {}", arg, t);
  }
  const int last = t.rank - 1;
  require(t.shape[last] <= 1 || t.strides[last] == 1,
          "the last dimension of {} must be contiguous, got {}", arg, t);
  const std::int64_t extent = extent_bytes(t);
  if (t.numel() == 0) return;
  require(t.data != nullptr, "{} {} has no data (null pointer)", arg, t);
  require(reinterpret_cast<std::uintptr_t>(t.data) % size_of(t.dtype) == 0,
          "{} {} is not aligned to its {}-byte elements", arg, t, size_of(t.dtype));
  require(reinterpret_cast<std::uintptr_t>(t.data) + static_cast<std::uintptr_t>(extent) >=
              reinterpret_cast<std::uintptr_t>(t.data),
          "{} {} reaches past the end of the address space", arg, t);
}

void OpScope::output(const char* arg, const Tensor& t,
                     std::initializer_list<DType> accepted) const {
  input(arg, t, accepted);
  require(!t.read_only, "{} {} is read-only, made from a pointer to const; give writable memory",
          arg, t);
  require(!reaches_an_element_twice(t), "{} reaches an element more than once: {}", arg, t);
}

void OpScope::shape(const char* arg, const Tensor& t,
                    std::initializer_list<std::int64_t> expected) const {
  bool equal = t.rank == static_cast<int>(expected.size());
  int d = 0;
  for (std::int64_t size : expected) {
    equal = equal && (size == -1 || t.shape[d] == size);
    ++d;
  }
  if (equal) return;
  std::vector<std::string> sizes;
  for (std::int64_t size : expected) sizes.push_back(size == -1 ? "any" : std::to_string(size));
  refuse("{} must have shape [{}], got {}", arg, fmt::join(sizes, ", "), t);
}

void OpScope::same_shape(const char* arg, const Tensor& t, const char* other_arg,
                         const Tensor& other) const {
  require(t.rank == other.rank && t.shape == other.shape,
          "{} must have the shape of {}, {}, got {}", arg, other_arg, other, t);
}

void OpScope::no_overlap(const char* out_arg, const Tensor& out, const char* in_arg,
                         const Tensor& in, bool same_view_is_fine) const {
  if (!in.defined() || !out.is_contiguous() || !in.is_contiguous()) return;
  if (same_view_is_fine && same_view(out, in)) return;
  const auto out_begin = reinterpret_cast<std::uintptr_t>(out.data);
  const auto in_begin = reinterpret_cast<std::uintptr_t>(in.data);
  const bool apart = out_begin + static_cast<std::uintptr_t>(out.bytes()) <= in_begin ||
                     in_begin + static_cast<std::uintptr_t>(in.bytes()) <= out_begin;
  require(apart || out.bytes() == 0 || in.bytes() == 0, "{} overlaps the memory of {}", out_arg,
          in_arg);
}

void OpScope::stored_input(const char* arg, const Tensor& stored, const char* computed_arg,
                           const Tensor& computed) const {
  if (computed.dtype != DType::f32) {
    input(arg, stored, {computed.dtype, DType::f8e4m3, DType::i8});
  } else {
    input(arg, stored, {DType::f32, DType::f16, DType::bf16, DType::f8e4m3, DType::i8});
  }
  one_dtype_on_gpu(arg, stored, computed_arg, computed);
}

void OpScope::stored_output(const char* arg, const Tensor& stored, const char* computed_arg,
                            const Tensor& computed) const {
  stored_input(arg, stored, computed_arg, computed);
  output(arg, stored, {stored.dtype});
}

void OpScope::scales_of(const char* arg, const Tensor& stored, const char* scales_arg,
                        const Tensor& scales, bool written) const {
  if (!has_scales(stored.dtype)) {
    return require(!scales.defined(), "{} was given, but {} is {}; only f8e4m3 and i8 have scales",
                   scales_arg, arg, name(stored.dtype));
  }
  require(scales.defined(), "{} is {}, and {} was not given", arg, name(stored.dtype), scales_arg);
  written ? output(scales_arg, scales, {DType::f32}) : input(scales_arg, scales, {DType::f32});
  shape(scales_arg, scales, {stored.shape[0], stored.shape[2], stored.shape[1]});
}

void OpScope::one_dtype_on_gpu(const char* arg, const Tensor& stored, const char* computed_arg,
                               const Tensor& computed) const {
  if (ctx_.device().is_cpu() || stored.dtype == computed.dtype || has_scales(stored.dtype)) return;
  throw OpError(ErrorCode::unsupported,
                fmt::format("{}: {} is {} and {} is {}; on a GPU both must be of one dtype", op_,
                            arg, name(stored.dtype), computed_arg, name(computed.dtype)));
}

void OpScope::no_kernel() const {
  throw OpError(
      ErrorCode::unsupported,
      fmt::format("{}: this build has no kernel for {}; run it on the CPU", op_, ctx_.device()));
}

OpScope::Clock::time_point OpScope::wait_for_end() const {
  // Not through the Context: a fault that shows up here was caused by this op, and explain()
  // reports it.
  if (ctx_.stream()) cuda::synchronize(ctx_.stream(), ctx_.device());
  return Clock::now();
}

void OpScope::record(const char* kernel, Clock::time_point end, std::string shapes,
                     OpCost cost) const {
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  Trace& trace = ctx_.trace();
  trace.record({.op = op_,
                .kernel = kernel,
                .shapes = std::move(shapes),
                .calls = 1,
                .seconds = seconds(end - start_),
                .bytes = cost.bytes,
                .flops = cost.flops});
  trace.add_overhead(seconds(Clock::now() - end));
}

void OpScope::explain(const Error& error, const std::string& shapes) const {
  if (dynamic_cast<const OpError*>(&error)) throw;  // already explained
  ctx_.require_not_lost();                          // so is the loss of a Context
  if (const auto* lost = dynamic_cast<const DeviceLost*>(&error)) {
    ctx_.lose(fmt::format("{} ({}): {}", op_, shapes, lost->what_failed()));
  }
  throw OpError(error.code(), fmt::format("{} ({}): {}", op_, shapes, error.what()));
}

}  // namespace tessera
