// tessera devices: what this machine and this build can run on.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "parallel/mpi/mpi_world.h"
#include "parallel/nccl.h"
#include "tessera/device.h"
#include "tessera/error.h"

namespace tessera::app {
namespace {

using Json = nlohmann::json;

struct DeviceRow {
  DeviceInfo info;
  std::optional<std::int64_t> free_bytes;
};

// Only trying shows whether a GPU can be started: another program may have it for itself, for
// instance.
DeviceRow look_at(DeviceInfo info) {
  DeviceRow row{std::move(info), {}};
  if (!row.info.usable()) return row;
  try {
    row.free_bytes = device_memory(row.info.device).free;
  } catch (const Error& error) {
    row.info.unusable = error.what();
  }
  return row;
}

std::vector<DeviceRow> look_at_all() {
  std::vector<DeviceRow> rows;
  for (DeviceInfo& info : devices()) rows.push_back(look_at(std::move(info)));
  return rows;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

int print_devices_json() {
  const CudaInfo cuda = cuda_info();
  const parallel::MpiInfo mpi = parallel::mpi_info();
  const parallel::NcclInfo nccl = parallel::nccl_info();
  Json list = Json::array();
  for (const auto& [info, free_bytes] : look_at_all()) {
    list.push_back({{"device", to_string(info.device)},
                    {"name", info.name},
                    {"capability", info.capability},
                    {"memory_bytes", info.memory_bytes},
                    {"memory_free_bytes", free_bytes ? Json(*free_bytes) : Json()},
                    {"compute_units", info.compute_units},
                    {"driver", info.device.is_cuda() ? text_or_null(cuda.driver) : Json()},
                    {"usable", info.usable()},
                    {"why_unusable", text_or_null(info.unusable)}});
  }
  const Json json = {
      {"devices", list},
      {"cuda",
       {{"status", cuda.status},
        {"toolkit", text_or_null(cuda.toolkit)},
        {"architectures", text_or_null(cuda.architectures)},
        {"driver", text_or_null(cuda.driver)},
        {"driver_cuda", text_or_null(cuda.driver_cuda)}}},
      {"mpi", {{"built", mpi.built}, {"text", mpi.text}}},
      {"nccl", {{"built", nccl.built}, {"usable", nccl.usable}, {"text", nccl.text}}}};
  fmt::print("{}\n", json.dump(2));
  return 0;
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// "570.124.06 (CUDA 12.8)"
std::string driver_text(const CudaInfo& cuda) {
  if (cuda.driver_cuda.empty()) return "none";
  return fmt::format("{} (CUDA {})", cuda.driver.empty() ? "unknown" : cuda.driver,
                     cuda.driver_cuda);
}

int print_devices() {
  const CudaInfo cuda = cuda_info();
  const std::vector<DeviceRow> rows = look_at_all();
  std::size_t name_width = 4;
  for (const DeviceRow& row : rows) name_width = std::max(name_width, row.info.name.size());
  const auto print_row = [&](const std::string& device, const std::string& name,
                             const std::string& capability, const std::string& memory,
                             const std::string& free, const std::string& units,
                             const std::string& driver) {
    fmt::print("{:<7} {:<{}}  {:<10} {:>10} {:>10} {:>6}  {}\n", device, name, name_width,
               capability, memory, free, units, driver);
  };
  print_row("device", "name", "capability", "memory", "free", "units", "driver");
  for (const auto& [info, free_bytes] : rows) {
    print_row(to_string(info.device), info.name, info.capability, gib(info.memory_bytes),
              free_bytes ? gib(*free_bytes) : "-", std::to_string(info.compute_units),
              info.device.is_cuda() ? driver_text(cuda) : "-");
    if (!info.usable()) fmt::print("        cannot be used: {}\n", info.unusable);
  }
  fmt::print("CUDA: {}\n", cuda.status);
  if (!cuda.toolkit.empty()) {
    fmt::print("This build: CUDA {}, kernels for {}; driver: {}\n", cuda.toolkit,
               cuda.architectures, driver_text(cuda));
  }
  fmt::print("Several processes: MPI: {}; NCCL: {}\n", parallel::mpi_info().text,
             parallel::nccl_info().text);
  return 0;
}

}  // namespace

Command add_devices(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "devices", "List the devices of this machine and what this build can do on them");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  command->footer("Example:\n  tessera devices --json | jq '.devices[] | select(.usable).name'");
  return [json] { return *json ? print_devices_json() : print_devices(); };
}

}  // namespace tessera::app
