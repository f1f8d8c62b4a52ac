#include "tessera/device.h"

#include <fmt/format.h>
#include <hwy/targets.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "core/cuda_runtime.h"
#include "tessera/version.h"

namespace tessera {
namespace {

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(':');
      if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
    }
  }
  return "CPU";
}

// The best SIMD target that was compiled in and that this CPU has.
std::string simd_target() {
  const std::int64_t supported = hwy::SupportedTargets();
  return hwy::TargetName(supported & -supported);
}

std::int64_t physical_memory() {
  return sysconf(_SC_PHYS_PAGES) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE));
}

// What programs can still get, as Linux estimates it; elsewhere, the unused pages.
std::int64_t available_host_memory() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string field, rest; meminfo >> field; std::getline(meminfo, rest)) {
    std::int64_t kibibytes = 0;
    if (field == "MemAvailable:" && meminfo >> kibibytes) return kibibytes * 1024;
  }
  return sysconf(_SC_AVPHYS_PAGES) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE));
}

}  // namespace

const char* version() {
#define TESSERA_STRING_(x) #x
#define TESSERA_STRING(x) TESSERA_STRING_(x)
  return TESSERA_STRING(TESSERA_VERSION_MAJOR) "." TESSERA_STRING(
      TESSERA_VERSION_MINOR) "." TESSERA_STRING(TESSERA_VERSION_PATCH);
#undef TESSERA_STRING
#undef TESSERA_STRING_
}

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index);
}

std::vector<DeviceInfo> devices() {
  DeviceInfo cpu;
  cpu.name = cpu_name();
  cpu.capability = simd_target();
  cpu.memory_bytes = physical_memory();
  cpu.compute_units = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  std::vector<DeviceInfo> all{cpu};
  for (DeviceInfo& gpu : cuda::list_devices()) all.push_back(std::move(gpu));
  return all;
}

CudaInfo cuda_info() { return cuda::describe(); }

std::string cuda_status() { return cuda_info().status; }

DeviceMemory device_memory(Device device) {
  if (device.is_cuda()) return cuda::memory(device);
  return {.free = available_host_memory(), .total = physical_memory()};
}

}  // namespace tessera
