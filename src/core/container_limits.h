// What the container of this process grants it, as Linux writes it down in the files of its control
// groups, version 1 and version 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct ContainerLimits {
  std::optional<double> processors{};    // quota / period: 1.5 is one and a half
  std::optional<std::int64_t> memory{};  // bytes
};
// The smallest limit of the group that this process is in and of the groups around it; empty where
// there is none. `root` stands before /proc and /sys, for tests.
ContainerLimits container_limits(const std::filesystem::path& root = "/");

// "max 100000", "150000 100000": the processors of cpu.max.
std::optional<double> parse_cpu_max(std::string_view text);
// "max", "1073741824": the bytes of memory.max, and of memory.limit_in_bytes, where a number near
// 2^63 means that there is no limit.
std::optional<std::int64_t> parse_memory_max(std::string_view text);

// A place where control groups are mounted, from a line of /proc/self/mountinfo.
struct GroupMount {
  bool v2 = false;
  std::vector<std::string> controllers{};  // of version 1: "cpu", "memory"
  std::string root{};                      // the group that is seen at `point`
  std::string point{};                     // "/sys/fs/cgroup/memory"
};
std::optional<GroupMount> parse_group_mount(const std::string& line);

}  // namespace tessera
