// Finds the checkpoints of a run (rf/model/run_checkpoints.h).
#include "rf/model/run_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "rf/io/error.h"
#include "rf/io/files.h"

namespace rf {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "checkpoint-";

}  // namespace

std::string checkpoint_path(const std::string& run_dir, int64_t step) {
  return fmt::format("{}/{}{}", run_dir, kPrefix, step);
}

std::vector<int64_t> checkpoint_steps(const std::string& run_dir) {
  std::vector<int64_t> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (error == std::errc() && stop == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> newest_checkpoint(const std::string& run_dir) {
  const std::vector<int64_t> steps = checkpoint_steps(run_dir);
  if (steps.empty()) return std::nullopt;
  return checkpoint_path(run_dir, steps.back());
}

std::string model_of_run(const std::string& dir, const std::function<void(const std::string&)>& note) {
  const auto has = [&](const char* name) { return io::has_file(fmt::format("{}/{}", dir, name)); };
  if (has("config.json") || !has("run.json")) return dir;
  const std::optional<std::string> checkpoint = newest_checkpoint(dir);
  if (!checkpoint) fail("model", "a run must have a model or a checkpoint, got none yet in {}", dir);
  note(fmt::format("{} has not finished: its newest checkpoint is used, {}", dir, *checkpoint));
  return *checkpoint;
}

}  // namespace rf
