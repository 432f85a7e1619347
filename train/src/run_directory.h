// The run directory: who may write in it, and what it is found to hold.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rf::train {

// Holds the directory for this process alone until it goes; the system lets go of it when the process is killed.
class RunDirectory {
 public:
  enum class Use { kFresh, kResume };

  // Makes the directory. kFresh: it must be absent or empty. kResume: it must be a run directory, absent or empty.
  // Throws Error otherwise, and when another process holds it. Temporaries of a killed process are removed.
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

// The first setting that is not what it was, as "40 at /seed where there was 30"; "" when all are.
std::string first_difference(const nlohmann::json& before, const nlohmann::json& now);

// Identity of a prepared data directory: a hash of its shards' headers, which hold counts, vocabulary and checksums.
std::string data_identity(const std::string& data_dir);

// What to tell whoever starts a run: the command that draws its loss curves, while it is going too.
std::string plot_hint(const std::string& run_dir);

}  // namespace rf::train
