// Trainings that processes share (shared_training.h).
#include "shared_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "rf/io/file_lock.h"

namespace rf::reproduce {

namespace {

constexpr std::chrono::seconds kPause{1};

std::string lock_path(const std::string& directory, std::string part) {
  std::replace(part.begin(), part.end(), '/', '-');
  return fmt::format("{}/{}.lock", directory, part);
}

}  // namespace

int share(const Context& context, const std::string& name, const std::vector<std::string>& parts,
          const std::function<int(size_t part)>& work) {
  const std::string directory = fmt::format("{}/locks/{}", context.shared_dir, name);
  std::filesystem::create_directories(directory);
  std::vector<size_t> open(parts.size());
  std::iota(open.begin(), open.end(), size_t{0});
  bool is_told = false;
  while (!open.empty()) {
    std::vector<size_t> held;
    for (const size_t part : open) {
      const auto lock = io::FileLock::try_hold(lock_path(directory, parts[part]));
      if (!lock) {
        held.push_back(part);
        continue;
      }
      if (const int signal = work(part); signal != 0) return signal;
    }
    if (held.size() == open.size()) {
      if (!is_told && context.note) {
        context.note(fmt::format("waiting for another process, which has {} of {}", parts[held.front()], name));
      }
      is_told = true;
      std::this_thread::sleep_for(kPause);
    }
    open = std::move(held);
  }
  return 0;
}

}  // namespace rf::reproduce
