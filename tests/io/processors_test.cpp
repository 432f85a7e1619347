// The CPU quota of cgroups, from files as Linux shows them.
#include "rf/io/processors.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "support.h"

namespace rf::testing {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

TEST(Processors, QuotaIsTheLowestOfTheGroupAndItsAncestors) {
  struct Case {
    std::string groups;  // proc/self/cgroup
    std::map<std::string, std::string> files;
    double quota;
  };
  const Case cases[] = {
      {"0::/\n", {}, kNone},
      {"0::/\n", {{"cpu.max", "max 100000\n"}}, kNone},
      {"0::/\n", {{"cpu.max", "150000 100000\n"}}, 1.5},
      {"0::/a/b\n",
       {{"a/b/cpu.max", "400000 100000\n"}, {"a/cpu.max", "50000 100000\n"}, {"cpu.max", "max 1000\n"}},
       0.5},
      {"0::/a/b\n", {{"a/b/cpu.max", "30000 10000\n"}, {"a/cpu.max", "max 100000\n"}}, 3},
      {"0::/a\n", {{"b/cpu.max", "50000 100000\n"}}, kNone},
      {"0::/../../b\n", {{"cpu.max", "50000 100000\n"}}, 0.5},  // moved out of the container's namespace
      // Version 1; the host's name of a container, where only the root of the mount exists; another controller's group.
      {"5:cpuset:/c\n4:cpu,cpuacct:/d\n0::/\n",
       {{"cpu/d/cpu.cfs_quota_us", "250000\n"}, {"cpu/d/cpu.cfs_period_us", "100000\n"}},
       2.5},
      {"4:cpu,cpuacct:/docker/12ab\n",
       {{"cpu/cpu.cfs_quota_us", "150000\n"}, {"cpu/cpu.cfs_period_us", "100000\n"}},
       1.5},
      {"1:cpu:/d\n", {{"cpu/d/cpu.cfs_quota_us", "-1\n"}, {"cpu/d/cpu.cfs_period_us", "100000\n"}}, kNone},
      {"4:cpuset:/d\n", {{"cpu/d/cpu.cfs_quota_us", "1000\n"}, {"cpu/d/cpu.cfs_period_us", "100000\n"}}, kNone},
      {"0::/\n", {{"cpu.max", "0 0\n"}}, kNone},
      {"no group\n", {{"cpu.max", "1 1\n"}}, kNone},
  };
  for (const Case& each : cases) {
    const TempDir root;
    tests::write(root / "proc/self/cgroup", each.groups);
    for (const auto& [name, text] : each.files) tests::write(root / ("sys/fs/cgroup/" + name), text);
    EXPECT_EQ(io::cpu_quota(root.path()), each.quota) << each.groups;
  }
  EXPECT_EQ(io::cpu_quota("/nowhere"), kNone);
}

TEST(Processors, AreAtLeastOne) { EXPECT_GE(io::available_processors(), 1); }

}  // namespace
}  // namespace rf::testing
