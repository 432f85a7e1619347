// The directory in which prepare() works until its result is whole.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace rf::data {

// Gives two directories each other's name in one step, or says why it could not: std::errc::invalid_argument or
// function_not_supported where the system or the file system knows no such step.
using ExchangeNames = std::error_code (*)(const std::filesystem::path&, const std::filesystem::path&);
std::error_code exchange_names(const std::filesystem::path& a, const std::filesystem::path& b);

// A directory that is built beside `output`, empty but for a mark that it is ours. Removed unless it becomes `output`.
// Locked, so that a second process does not take it for one that a killed process left behind.
class StagingDirectory {
 public:
  // Throws Error when `output` is something that prepare() may not replace, when the place is taken by what prepare()
  // did not make, and when another process works there.
  explicit StagingDirectory(const std::string& output);
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;
  std::string directory() const { return directory_.string(); }
  // What there would be for that output: its own path, links followed, and the directory's. Throws Error for an output
  // that may not be replaced.
  static std::vector<std::string> paths_of(const std::string& output);

  // Makes the directory `output`. There is always a whole directory of that name if there was one before, except where
  // names cannot be exchanged: there the old one is moved away first, and back when the second step fails. Of what was
  // there before only the files that its data.json names are removed.
  void publish(ExchangeNames exchange = exchange_names);

 private:
  void take_over();
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
