#include "machine_facts.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "commit.h"
#include "rf/status.h"
#include "rf/train/runtime.h"

namespace rf::cli {

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

nlohmann::json machine_facts() {
  return {{"cpu", cpu_name()},     {"cores", std::thread::hardware_concurrency()},  {"threads", train::threads()},
          {"target", rf_target()}, {"torch", train::runtime_facts().torch_version}, {"commit", kCommit}};
}

}  // namespace rf::cli
