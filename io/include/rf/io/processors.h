// How many threads a process should start.
#pragma once

#include <filesystem>

namespace rf::io {

// The processors of the affinity mask, or fewer if the CPU quota of the process's cgroups is lower: a container
// with 1.5 CPUs has 2. At least 1.
int available_processors();

// The lowest CPU quota, in processors, of the process's cgroups and their ancestors, versions 1 and 2; infinity without
// one. root: of a file system with proc/self/cgroup and sys/fs/cgroup.
double cpu_quota(const std::filesystem::path& root);

}  // namespace rf::io
