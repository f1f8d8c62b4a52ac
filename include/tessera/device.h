// Where memory lives and where work runs.
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

// What one device is, as `tessera devices` prints it.
struct DeviceInfo {
  Device device{};
  std::string name{};              // "NVIDIA H200", "AMD EPYC ..."
  std::string capability{};        // "9.0" for a GPU; the SIMD target in use for the CPU: "AVX3_DL"
  std::int64_t memory_bytes = 0;   // physical memory
  std::int32_t compute_units = 0;  // multiprocessors, or hardware threads
  std::string unusable{};          // empty; or why this build cannot use the device, and what to do

  bool usable() const { return unusable.empty(); }
};

// The CPU first, then every GPU, those that this build cannot use among them. A build without CUDA,
// a machine without a driver or without a GPU gives the CPU alone; cuda_info() says which of these
// it is.
std::vector<DeviceInfo> devices();

// The CUDA side of this build and of this machine.
struct CudaInfo {
  std::string toolkit{};        // that this build was made with: "13.0"; empty: it has no CUDA
  std::string architectures{};  // that it has kernels for, as CMake names them: "80-real 90a-real"
  std::string driver{};         // of this machine: "570.124.06"; empty: none, or not known
  std::string driver_cuda{};    // the newest CUDA that the driver knows: "12.8"; empty: no driver
  std::string status{};         // one sentence on which GPUs can be used, or why none can
};
CudaInfo cuda_info();
// cuda_info().status
std::string cuda_status();

// Of a GPU what its driver says. Of this machine its physical memory, and what the system believes
// programs can still have without swapping. Asking a GPU starts CUDA on it, which takes a moment
// and some of its memory; throws Error where the device cannot be used.
struct DeviceMemory {
  std::int64_t free = 0, total = 0;
};
DeviceMemory device_memory(Device device);

}  // namespace tessera
