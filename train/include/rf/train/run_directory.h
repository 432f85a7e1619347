// The directories of runs: how they are created, locked and recognised, and the settings they store. Free of torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "rf/io/files.h"

namespace rf::train {

class RunDirectory {
 public:
  enum class Use { kFresh, kResume };

  // Creates the directory and locks it for this process while the object exists; the system releases the lock if the
  // process is killed. kFresh: it must be absent or empty. kResume: it must be a run directory, absent or empty. Throws
  // Error otherwise, and if another process has locked it. Temporary files of a killed process are removed.
  RunDirectory(std::string path, Use use);
  // Creates the directory of the command `command` without a lock and keeps its contents.
  static RunDirectory unlocked(const char* command, std::string path);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool has(const std::string& name) const;
  bool is_empty() const;  // except for hidden and temporary files
  // The stored settings of its runs, from the file `name`; `settings` if the file does not exist.
  nlohmann::json settings_or(const std::string& name, const nlohmann::json& settings) const;
  // The same, but writes the file with `settings` if it does not exist.
  nlohmann::json kept_settings(const std::string& name, const nlohmann::json& settings) const;

 private:
  struct Unlocked {
    const char* command;
  };
  RunDirectory(std::string path, Unlocked use);

  std::string path_;
  std::optional<io::FileLock> lock_;
};

// A message for the start of a run: the command that draws its loss curves, also during the run.
std::string plot_hint(const std::string& run_dir);

}  // namespace rf::train
