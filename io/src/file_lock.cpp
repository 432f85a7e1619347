// Locks between processes (rf/io/file_lock.h).
#include "rf/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "writing.h"

namespace rf::io {

std::optional<FileLock> FileLock::try_hold(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) fail_errno(path, "open");
  FileLock lock(file);
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) fail_errno(path, "lock");
  return std::nullopt;
}

FileLock::~FileLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace rf::io
