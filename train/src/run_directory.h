// The run directory: locks it for one process and checks its contents.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rf::train {

// Locks the directory for this process while it exists; the system releases the lock if the process is killed.
class RunDirectory {
 public:
  enum class Use { kFresh, kResume };

  // Makes the directory. kFresh: it must be absent or empty. kResume: it must be a run directory, absent or empty.
  // Throws Error otherwise, and if another process has locked it. Temporary files of a killed process are removed.
  RunDirectory(std::string path, Use use);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool has_run() const { return has_run_; }  // run.json was there

 private:
  std::string path_;
  int lock_ = -1;
  bool has_run_ = false;
};

// The first setting that has changed, as "40 at /seed where there was 30"; "" if there is none.
std::string first_difference(const nlohmann::json& before, const nlohmann::json& now);

// Identity of a prepared data directory: a hash of its shards' headers, which hold counts, vocabulary and checksums.
std::string data_identity(const std::string& data_dir);

// A message for the start of a run: the command that draws its loss curves, also during the run.
std::string plot_hint(const std::string& run_dir);

}  // namespace rf::train
