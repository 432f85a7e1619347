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
// unless it becomes `output`. A lock keeps a second process from mistaking it for one left behind by a killed process.
class StagingDirectory {
 public:
  // Throws Error if prepare() may not replace `output`, if a directory of this name exists that prepare() did not make,
  // and if another process uses it.
  explicit StagingDirectory(const std::string& output);
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;
  std::string directory() const { return directory_.string(); }
  // The paths that would be used for that output: the output itself, with links resolved; the staging directory; and
  // the new place of an old output.
  static std::vector<std::string> written_paths(const std::string& output);
  // Same, but throws Error for an output that may not be replaced.
  static std::vector<std::string> paths_of(const std::string& output);

  // Renames the directory to `output`. If a directory of that name existed, a complete one exists at every moment. The
  // exception are systems that cannot exchange names: there the old directory is renamed first, and renamed back if the
  // second step fails. Of the old directory, only files named in its data.json are removed.
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
