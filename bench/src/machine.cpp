// Facts about the machine and the build (rf/bench/machine.h).
#include "rf/bench/machine.h"

#include <fstream>
#include <thread>

#include "commit.h"
#include "rf/status.h"

namespace rf::bench {

namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Machine this_machine() {
  return {cpu_name(), std::thread::hardware_concurrency(), rf_target(), kCommit};
}

}  // namespace rf::bench
