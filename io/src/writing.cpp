#include "writing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/files.h"

namespace rf::io {

void fail_errno(const std::string& path, std::string_view action) {
  const int code = errno;
  if (code == ENOENT) fail<MissingFileError>(path, "cannot {}: {}", action, std::strerror(code));
  fail(path, "cannot {}: {}", action, std::strerror(code));
}

std::string replaceable_target(std::string path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    const fs::path target = fs::canonical(path, error);
    if (error) fail(path, "cannot resolve the symbolic link: {}", error.message());
    path = target.string();
  }
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fail(path, "a file is written only over a regular file, got a directory, a pipe or a device");
  }
  return path;
}

void write_at(int fd, const std::string& path, size_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<size_t>(written);
  }
}

void check_patch(const std::string& path, size_t offset, size_t bytes, size_t size) {
  if (offset <= size && bytes <= size - offset) return;
  fail(path, "a patch must lie within the {} bytes written, got {} bytes at {}", size, bytes, offset);
}

void publish(int& fd, const std::string& temporary, const std::string& path) {
  if (::fsync(fd) != 0) fail_errno(path, "sync");
  // close() may report a deferred write error (network file systems); the descriptor is closed either way.
  if (::close(std::exchange(fd, -1)) != 0) fail_errno(path, "close");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail_errno(path, "rename the temporary file");
  const std::string parent = std::filesystem::path(path).parent_path().string();
  sync_directory(parent.empty() ? "." : parent);
}

}  // namespace rf::io
