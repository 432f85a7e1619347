// Locks among processes.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace rf::io {

// A file that one holder at a time has (flock(2)), as long as the object exists. The system lets go of it when the
// process ends, however it ends. The file is made where there is none, and stays.
class FileLock {
 public:
  // Without waiting; nothing if another process, or another object of this one, holds the file. Throws Error if it
  // cannot be opened or its file system has no locks.
  static std::optional<FileLock> try_hold(const std::string& path);

  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int file) : file_(file) {}

  int file_;
};

}  // namespace rf::io
