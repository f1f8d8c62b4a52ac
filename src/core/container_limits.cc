// /proc/self/cgroup names the group of this process in each hierarchy, /proc/self/mountinfo where
// that hierarchy is mounted. Inside of a container the mount often begins at the group itself:
//
//   4:memory:/docker/71f0                       the group
//   35 31 0:32 /docker/71f0 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
//              ^ seen here  ^ at this path
#include "core/container_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

namespace tessera {
namespace {

namespace fs = std::filesystem;

// No machine has as much memory; version 1 writes the largest number of whole pages for "none".
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

std::vector<std::string> words_of(const std::string& line, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<double> cpu_v1(const fs::path& group) {
  const auto quota = number_in(first_line(group / "cpu.cfs_quota_us"));
  const auto period = number_in(first_line(group / "cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

template <typename T>
void lower(std::optional<T>& limit, const std::optional<T>& other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// The groups from `group` up to the mount, as seen below `point`.
std::vector<fs::path> groups_up(const fs::path& point, const std::string& mount_root,
                                const std::string& group) {
  const fs::path below = fs::path(group).lexically_relative(mount_root);
  std::vector<fs::path> groups{point};
  if (below.empty() || *below.begin() == "..") return groups;  // seen from elsewhere
  fs::path at = point;
  for (const fs::path& name : below) {
    if (name != ".") groups.push_back(at /= name);
  }
  return groups;
}

void read_group(const GroupMount& mount, const fs::path& group, ContainerLimits& limits) {
  if (mount.v2 || has(mount.controllers, "cpu")) {
    lower(limits.processors,
          mount.v2 ? parse_cpu_max(first_line(group / "cpu.max")) : cpu_v1(group));
  }
  if (mount.v2 || has(mount.controllers, "memory")) {
    lower(
        limits.memory,
        parse_memory_max(first_line(group / (mount.v2 ? "memory.max" : "memory.limit_in_bytes"))));
  }
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto quota = number_in(text.substr(0, space));
  const auto period = number_in(text.substr(space + 1));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::int64_t> parse_memory_max(std::string_view text) {
  const auto bytes = number_in(text);
  if (!bytes || *bytes < 0 || *bytes >= kNoLimit) return std::nullopt;
  return bytes;
}

std::optional<GroupMount> parse_group_mount(const std::string& line) {
  const std::vector<std::string> words = words_of(line, ' ');
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (words.size() < 5 || words.end() - dash < 4) return std::nullopt;
  const std::string& type = dash[1];
  if (type != "cgroup" && type != "cgroup2") return std::nullopt;
  return GroupMount{.v2 = type == "cgroup2",
                    .controllers = words_of(dash[3], ','),
                    .root = words[3],
                    .point = words[4]};
}

ContainerLimits container_limits(const fs::path& root) {
  std::vector<std::pair<std::vector<std::string>, std::string>> memberships;
  std::ifstream cgroup(root / "proc/self/cgroup");
  for (std::string line; std::getline(cgroup, line);) {  // "4:memory:/docker/71f0"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    memberships.emplace_back(words_of(line.substr(first + 1, second - first - 1), ','),
                             line.substr(second + 1));
  }
  ContainerLimits limits;
  std::ifstream mounts(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const auto mount = parse_group_mount(line);
    if (!mount) continue;
    for (const auto& [controllers, group] : memberships) {
      // Version 2 has one hierarchy, without names of controllers.
      const bool of_mount =
          mount->v2
              ? controllers.empty()
              : std::any_of(controllers.begin(), controllers.end(),
                            [&](const std::string& name) { return has(mount->controllers, name); });
      if (!of_mount) continue;
      const fs::path point = root / fs::path(mount->point).relative_path();
      for (const fs::path& at : groups_up(point, mount->root, group)) {
        read_group(*mount, at, limits);
      }
    }
  }
  return limits;
}

}  // namespace tessera
