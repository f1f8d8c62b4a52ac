// Where memory lives and where work runs.
//
// Threads: any number may call these functions at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// The values are DLPack's (kDLCPU, kDLCUDA), so that a Tensor maps to a DLTensor field by field.
enum class DeviceType : std::int32_t { cpu = 1, cuda = 2 };

struct Device {
  DeviceType type = DeviceType::cpu;
  std::int32_t index = 0;

  static constexpr Device cpu() { return {DeviceType::cpu, 0}; }
  static constexpr Device cuda(std::int32_t index = 0) { return {DeviceType::cuda, index}; }
  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

// "cpu", "cuda:0"
std::string to_string(Device device);

// One device, as `tessera devices` prints it.
struct DeviceInfo {
  Device device{};
  std::string name{};              // "NVIDIA H200", "AMD EPYC ..."
  std::string capability{};        // "9.0" for a GPU; the SIMD target in use for the CPU: "AVX3_DL"
  std::int64_t memory_bytes = 0;   // physical memory
  std::int32_t compute_units = 0;  // multiprocessors, or hardware threads
  std::string unusable{};          // empty; or why this build cannot use the device, and what to do

  bool usable() const { return unusable.empty(); }
};

// The CPU first, then every GPU, including those that this build cannot use. In a build without
// CUDA, or without a driver or a GPU, only the CPU; cuda_info() has the reason.
std::vector<DeviceInfo> devices();

// The CUDA side of this build and of this machine.
struct CudaInfo {
  std::string toolkit{};        // of this build: "13.0"; empty: built without CUDA
  std::string architectures{};  // with kernels in this build, in CMake's names: "80-real 90a-real"
  std::string driver{};         // of this machine: "570.124.06"; empty: none, or unknown
  std::string driver_cuda{};  // the newest CUDA that the driver supports: "12.8"; empty: no driver
  std::string status{};       // one sentence: which GPUs can be used, or why none can
};
CudaInfo cuda_info();
// cuda_info().status
std::string cuda_status();

struct DeviceMemory {
  std::int64_t free = 0, total = 0;
};
// For a GPU, what its driver reports. For the CPU, the physical memory, and the system's estimate
// of what programs can still get without swapping. For a GPU, the call starts CUDA on it, which
// takes a moment and some of its memory. Throws Error if the device cannot be used.
DeviceMemory device_memory(Device device);

// The host memory of this process. `total` is what it may hold: its container's limit (cgroup
// memory.max) or what the machine had free at the first allocation, whichever is smaller, less a
// reserve for uncounted memory. `free` is the part of it that Buffers, workspaces, caches and
// weights, including mapped ones, do not hold. A Buffer that does not fit is refused before
// anything is allocated.
DeviceMemory process_memory();

}  // namespace tessera
