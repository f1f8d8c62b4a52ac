// The limits of a container, read from files as Linux writes them.
#include "core/container_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/processors.h"
#include "support/files.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kGibi = 1 << 30;

TEST(ContainerLimits, ReadsTheNumbersOfVersionTwo) {
  EXPECT_EQ(parse_cpu_max("150000 100000"), 1.5);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  for (const char* none :
       {"max 100000", "", "max", "100000", "0 100000", "-1 100000", "1 0", "x"}) {
    EXPECT_EQ(parse_cpu_max(none), std::nullopt) << none;
  }
  EXPECT_EQ(parse_memory_max("1073741824"), kGibi);
  // The last one is how version 1 says that there is no limit.
  for (const char* none : {"max", "", "-1", "x", "9223372036854771712"}) {
    EXPECT_EQ(parse_memory_max(none), std::nullopt) << none;
  }
}

TEST(ContainerLimits, ReadsTheLinesOfMounts) {
  const auto v1 = parse_group_mount(
      "33 25 0:28 /docker/71f0 /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:9 - cgroup cgroup "
      "rw,cpu,cpuacct");
  ASSERT_TRUE(v1);
  EXPECT_FALSE(v1->v2);
  EXPECT_EQ(v1->root, "/docker/71f0");
  EXPECT_EQ(v1->point, "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(v1->controllers, (std::vector<std::string>{"rw", "cpu", "cpuacct"}));
  const auto v2 =
      parse_group_mount("30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate");
  ASSERT_TRUE(v2);
  EXPECT_TRUE(v2->v2);
  for (const char* other :
       {"", "a b", "1 2 3 / /proc rw - proc proc rw", "1 2 3 4 5 - cgroup", "-"}) {
    EXPECT_FALSE(parse_group_mount(other)) << other;
  }
}

// A machine made of files.
class FakeMachine {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    write_text(file, text);
  }
  ContainerLimits limits() const { return container_limits(folder_.path()); }

 private:
  TemporaryFolder folder_;
};

TEST(ContainerLimits, OfVersionTwoAreThoseOfEveryGroupAround) {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "0::/service/job\n");
  machine.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(machine.limits().processors, std::nullopt);
  EXPECT_EQ(machine.limits().memory, std::nullopt);
  machine.write("sys/fs/cgroup/service/job/cpu.max", "300000 100000\n");
  machine.write("sys/fs/cgroup/service/job/memory.max", "max\n");
  machine.write("sys/fs/cgroup/service/memory.max", "2147483648\n");
  EXPECT_EQ(machine.limits().processors, 3.0);
  EXPECT_EQ(machine.limits().memory, 2 * kGibi);
  machine.write("sys/fs/cgroup/service/cpu.max", "120000 100000\n");
  EXPECT_EQ(machine.limits().processors, 1.2);
}

TEST(ContainerLimits, OfVersionOneLieInAHierarchyForEachController) {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "3:cpu,cpuacct:/\n4:memory:/docker/71f0\n0::/\n");
  machine.write("proc/self/mountinfo",
                "1 1 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                "2 1 0:2 /docker/71f0 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(machine.limits().processors, std::nullopt);
  EXPECT_EQ(machine.limits().memory, kGibi);
  machine.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(machine.limits().processors, 2.5);
}

// In a container the group's own name may lie outside of what is mounted.
TEST(ContainerLimits, AGroupThatCannotBeSeenIsTheMountItself) {
  const FakeMachine machine;
  machine.write("proc/self/cgroup", "0::/../other/job\n");
  machine.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  machine.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(machine.limits().processors, 1.0);
}

TEST(ContainerLimits, AMachineWithoutGroupsHasNone) {
  const FakeMachine machine;
  EXPECT_EQ(machine.limits().processors, std::nullopt);
  EXPECT_EQ(machine.limits().memory, std::nullopt);
}

TEST(Processors, AQuotaIsRoundedUpAndNeverNone) {
  EXPECT_EQ(processors_within(8, std::nullopt), 8);
  EXPECT_EQ(processors_within(8, 1.5), 2);
  EXPECT_EQ(processors_within(8, 0.1), 1);
  EXPECT_EQ(processors_within(8, 7.9), 8);
  EXPECT_EQ(processors_within(8, 64.0), 8);
  EXPECT_EQ(processors_within(0, std::nullopt), 1);
  EXPECT_GE(usable_processors(), 1);
}

}  // namespace
}  // namespace tessera::test
