// The directory in which prepare() works until its result is whole.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace rf::data {

// A directory that is built beside `output`, empty. Removed unless it is renamed to `output`. Locked, so that a second
// process does not take it for one that a killed process left behind.
class Workplace {
 public:
  // Throws Error when `output` is something that prepare() may not replace, and when another process works there.
  explicit Workplace(const std::string& output);
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  std::string directory() const { return directory_.string(); }

  // What was in `output` is moved away, and removed when the new directory has its name.
  void publish();

 private:
  void lock();
  [[noreturn]] void fail_to_write(const std::error_code& error) const;
  void check_output() const;

  std::filesystem::path output_, directory_;
  int lock_ = -1;
  bool published_ = false;
};

}  // namespace rf::data
