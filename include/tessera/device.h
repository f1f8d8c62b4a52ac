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
  Device device;
  std::string name;                // "NVIDIA H200", "AMD EPYC ..."
  std::string capability;          // "9.0" for a GPU; the SIMD target in use for the CPU: "AVX3_DL"
  std::int64_t memory_bytes = 0;   // physical memory
  std::int32_t compute_units = 0;  // multiprocessors, or hardware threads
};

// The CPU first, then every usable GPU. A build without CUDA, a machine without a driver or without
// a GPU gives the CPU alone; cuda_status() says which of these it is.
std::vector<DeviceInfo> devices();

// One sentence on why CUDA devices are or are not listed.
std::string cuda_status();

}  // namespace tessera
