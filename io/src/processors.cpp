// The processors of a process (processors.h).
#include "rf/io/processors.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace rf::io {

namespace {

namespace fs = std::filesystem;

constexpr double kNone = std::numeric_limits<double>::infinity();

// Version 2: "max 100000" or "150000 100000" in cpu.max. Version 1: two files, where -1 means unlimited.
double quota_of(const fs::path& group) {
  double quota = 0, period = 0;
  if (std::ifstream(group / "cpu.max") >> quota >> period ||
      (std::ifstream(group / "cpu.cfs_quota_us") >> quota && std::ifstream(group / "cpu.cfs_period_us") >> period))
    return quota > 0 && period > 0 ? quota / period : kNone;
  return kNone;
}

// In a container, a name may be the host's; then only the root of the mount exists, which is the container's group.
double lowest_quota(const fs::path& mount, fs::path name) {
  double lowest = quota_of(mount);
  for (; name.has_relative_path(); name = name.parent_path())
    lowest = std::min(lowest, quota_of(mount / name.relative_path()));
  return lowest;
}

bool has_cpu(const std::string& controllers) { return (',' + controllers + ',').find(",cpu,") != std::string::npos; }

}  // namespace

double cpu_quota(const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  double lowest = kNone;
  for (std::string id, controllers, name;
       std::getline(groups, id, ':') && std::getline(groups, controllers, ':') && std::getline(groups, name);) {
    const fs::path mount = root / "sys/fs/cgroup";
    name = fs::path(name).lexically_normal();
    if (controllers.empty()) lowest = std::min(lowest, lowest_quota(mount, name));
    if (has_cpu(controllers)) lowest = std::min(lowest, lowest_quota(mount / "cpu", name));
  }
  return lowest;
}

int available_processors() {
  const double all = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<int>(std::max(1.0, std::min(all, std::ceil(cpu_quota("/")))));
}

}  // namespace rf::io
