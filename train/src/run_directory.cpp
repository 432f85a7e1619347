// The run directory (run_directory.h).
#include "run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/shown_text.h"

namespace rf::train {

namespace {

namespace fs = std::filesystem;

constexpr size_t kShardHeaderBytes = 128;

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

RunDirectory::RunDirectory(std::string path, Use use) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_)) {
    fail("train", "the output must be a directory that can be made, got {}: {}", path_,
         error ? error.message() : "a file");
  }
  const std::string entry = first_entry(path_);
  has_run_ = fs::exists(file("run.json"));
  if (use == Use::kFresh && !entry.empty()) {
    fail("train", "the output directory must be empty, got {} with {} in it{}", path_, entry,
         has_run_ ? "; give --resume to continue that run" : "");
  }
  if (use == Use::kResume && !entry.empty() && !has_run_) {
    fail("resume", "the output directory must be a run directory, got {} without run.json and with {} in it", path_,
         entry);
  }
  lock_ = ::open(file(".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) fail("train", "the output directory must be writable, got {}: {}", path_, std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    fail("train", "the output directory must be used by one process, got {}, which another one holds", path_);
  }
  remove_temporaries(path_);
}

RunDirectory::~RunDirectory() {
  ::close(lock_);
}

std::string first_difference(const nlohmann::json& before, const nlohmann::json& now) {
  const nlohmann::json difference = nlohmann::json::diff(before, now);
  if (difference.empty()) return "";
  const nlohmann::json::json_pointer place(difference.at(0).at("path").get<std::string>());
  const auto value = [&](const nlohmann::json& in) { return in.contains(place) ? in.at(place).dump() : "nothing"; };
  return fmt::format("{} at {} where there was {}", value(now), place.to_string(), value(before));
}

std::string data_identity(const std::string& data_dir) {
  std::vector<std::string> shards;
  for (const fs::directory_entry& entry : fs::directory_iterator(data_dir)) {
    if (entry.path().extension() == ".rfs") shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  std::string headers;
  for (const std::string& shard : shards) {
    const io::MappedFile mapped(shard);
    const size_t count = std::min(kShardHeaderBytes, mapped.bytes().size());
    headers.append(reinterpret_cast<const char*>(mapped.bytes().data()), count);
  }
  return fmt::format("{:016x}", XXH3_64bits(headers.data(), headers.size()));
}

std::string plot_hint(const std::string& run_dir) {
  return fmt::format("loss curves, at any time: python -m roformer_cpp.plot {}", io::shell_word(run_dir));
}

}  // namespace rf::train
