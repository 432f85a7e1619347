// The directory in which prepare() works until its result is complete.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace rf::data {

// Exchanges the names of two directories in one step, or returns the error: std::errc::invalid_argument or
// function_not_supported if the system or the file system cannot do it.
using ExchangeNames = std::error_code (*)(const std::filesystem::path&, const std::filesystem::path&);
std::error_code exchange_names(const std::filesystem::path& a, const std::filesystem::path& b);

// A directory in the same folder as `output`, at first empty except for a file that marks it as ours. It is removed
// unless it becomes `output`, and locked, so that a second process does not mistake it for one that a killed process
// left behind.
class StagingDirectory {
 public:
  // Throws Error if `output` is something that prepare() may not replace, if there is a directory of this name that
  // prepare() did not make, and if another process uses it.
  explicit StagingDirectory(const std::string& output);
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;
  std::string directory() const { return directory_.string(); }
  // The paths that would be used for that output: its own, with links resolved, that of the staging directory, and that
  // to which an old output is moved.
  static std::vector<std::string> written_paths(const std::string& output);
  // The same; throws Error for an output that may not be replaced.
  static std::vector<std::string> paths_of(const std::string& output);

  // Renames the directory to `output`. If there was a directory of that name, a complete one exists at every moment,
  // except where names cannot be exchanged: there the old one is renamed first, and renamed back if the second step
  // fails. Only those files of the old directory are removed that its data.json names.
  void publish(ExchangeNames exchange = exchange_names);

 private:
  void clear_leftovers();
  void lock();
  void replace(ExchangeNames exchange);
  void move_aside();
  [[noreturn]] void fail_to_write(const std::error_code& error) const;
  [[noreturn]] void fail_to_replace(const std::error_code& error) const;

  std::filesystem::path output_, directory_;
  int lock_ = -1;
  bool published_ = false;
};

}  // namespace rf::data
