// The directories of runs: how each is made, locked and recognised, and what it says about the runs in it. Free of
// torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "rf/io/file_lock.h"

namespace rf::train {

class RunDirectory {
 public:
  enum class Use { kFresh, kResume };

  // Makes the directory, which is locked for this process while the object exists; the system releases the lock if the
  // process is killed. kFresh: it must be absent or empty. kResume: it must be a run directory, absent or empty. Throws
  // Error otherwise, and if another process has locked it. Temporary files of a killed process are removed.
  RunDirectory(std::string path, Use use);
  // Makes the directory of a command of that name; it is not locked, and whatever is in it stays.
  static RunDirectory unlocked(const char* command, std::string path);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool has(const std::string& name) const;
  bool is_empty() const;  // but for hidden and temporary files
  // The settings of the runs in it, which the file `name` holds; `settings` if there is none.
  nlohmann::json settings_or(const std::string& name, const nlohmann::json& settings) const;
  // The same; if there is none it is written, with `settings`.
  nlohmann::json kept_settings(const std::string& name, const nlohmann::json& settings) const;

 private:
  struct Unlocked {
    const char* command;
  };
  RunDirectory(std::string path, Unlocked use);

  std::string path_;
  std::optional<io::FileLock> lock_;
};

// The first setting that has changed, as "40 at /seed where there was 30"; "" if there is none.
std::string first_difference(const nlohmann::json& before, const nlohmann::json& now);

// A message for the start of a run: the command that draws its loss curves, also during the run.
std::string plot_hint(const std::string& run_dir);

}  // namespace rf::train
