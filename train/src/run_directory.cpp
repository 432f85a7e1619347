// Directories of runs (rf/train/run_directory.h).
#include "rf/train/run_directory.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/shown_text.h"

namespace rf::train {

namespace {

namespace fs = std::filesystem;

// The first entry that is neither hidden nor temporary, or "".
std::string first_entry(const std::string& path) {
  std::string first;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(".") || is_temporary(name)) continue;
    if (first.empty() || name < first) first = name;
  }
  return first;
}

}  // namespace

RunDirectory::RunDirectory(std::string path, Unlocked use) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_)) {
    fail(use.command, "the output must be a directory that can be made, got {}: {}", path_,
         error ? error.message() : "a file");
  }
}

RunDirectory RunDirectory::unlocked(const char* command, std::string path) {
  return {std::move(path), Unlocked{command}};
}

RunDirectory::RunDirectory(std::string path, Use use) : RunDirectory(std::move(path), Unlocked{"train"}) {
  const std::string entry = first_entry(path_);
  if (use == Use::kFresh && !entry.empty()) {
    fail("train", "the output directory must be empty, got {} with {} in it{}", path_, entry,
         has("run.json") ? "; give --resume to continue that run" : "");
  }
  if (use == Use::kResume && !entry.empty() && !has("run.json")) {
    fail("resume", "the output directory must be a run directory, got {} without run.json and with {} in it", path_,
         entry);
  }
  try {
    lock_ = io::FileLock::try_hold(file(".lock"));
  } catch (const Error& error) {
    fail("train", "the output directory must be writable, got {}: {}", path_, error.what());
  }
  if (!lock_) {
    fail("train", "the output directory must be used by one process, got {}, which another one holds", path_);
  }
  remove_temporaries(path_);
}

bool RunDirectory::has(const std::string& name) const { return io::has_file(file(name)); }

bool RunDirectory::is_empty() const { return first_entry(path_).empty(); }

nlohmann::json RunDirectory::settings_or(const std::string& name, const nlohmann::json& settings) const {
  return has(name) ? io::read_json(file(name)) : settings;
}

nlohmann::json RunDirectory::kept_settings(const std::string& name, const nlohmann::json& settings) const {
  if (!has(name)) io::write_file(file(name), settings.dump(2) + "\n");
  return settings_or(name, settings);
}

std::string plot_hint(const std::string& run_dir) {
  return fmt::format("loss curves, at any time: python -m roformer_cpp.plot {}", io::shell_word(run_dir));
}

}  // namespace rf::train
