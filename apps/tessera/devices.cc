// tessera devices: what this machine and this build can run on.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "tessera/device.h"

namespace tessera::app {
namespace {

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

int print_json() {
  nlohmann::json list = nlohmann::json::array();
  for (const DeviceInfo& info : devices()) {
    list.push_back({{"device", to_string(info.device)},
                    {"name", info.name},
                    {"capability", info.capability},
                    {"memory_bytes", info.memory_bytes},
                    {"compute_units", info.compute_units}});
  }
  fmt::print("{}\n", nlohmann::json{{"devices", list}, {"cuda", cuda_status()}}.dump(2));
  return 0;
}

int print_table() {
  fmt::print("{:<8} {:<36} {:<12} {:>10} {:>6}\n", "device", "name", "capability", "memory",
             "units");
  for (const DeviceInfo& info : devices()) {
    fmt::print("{:<8} {:<36} {:<12} {:>6.1f} GiB {:>6}\n", to_string(info.device), info.name,
               info.capability, gib(info.memory_bytes), info.compute_units);
  }
  fmt::print("CUDA: {}\n", cuda_status());
  return 0;
}

}  // namespace

Command add_devices(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List the devices this build can run on");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  command->footer("Example:\n  tessera devices --json | jq '.devices[].name'");
  return [json] { return *json ? print_json() : print_table(); };
}

}  // namespace tessera::app
