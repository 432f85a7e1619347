// Locks between processes.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace rf::io {

// A file that one holder at a time locks (flock(2)), while the object exists. The system releases the lock when the
// process ends, even if it is killed. The file is created if absent, and stays.
class FileLock {
 public:
  // Does not wait; returns nullopt if another process, or another object of this process, holds the file. Throws Error
  // if it cannot be opened or its file system does not support locks.
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
