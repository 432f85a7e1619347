#include "rf/io/resumable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rf/io/error.h"
#include "writing.h"

namespace rf::io {
namespace {

// True if `fd` is still the file with that name: another process may have renamed it before it was locked.
bool is_file_of_name(int fd, const std::string& name) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

ResumableFile::ResumableFile(std::string path) : path_(replaceable_target(std::move(path))), partial_(path_ + ".part") {
  while (fd_ < 0) {
    fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd_ < 0) fail_errno(partial_, "create");
    try {
      if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) fail_errno(partial_, "lock");
        fail(path_, "must be written by one process at a time, got another one that writes {}", partial_);
      }
      struct stat status {};
      if (::fstat(fd_, &status) != 0) fail_errno(partial_, "read the size");
      if (!S_ISREG(status.st_mode)) fail(partial_, "must be a regular file, got a directory, a pipe or a device");
      size_ = static_cast<size_t>(status.st_size);
    } catch (const Error&) {
      ::close(fd_);
      throw;
    }
    if (!is_file_of_name(fd_, partial_)) ::close(std::exchange(fd_, -1));
  }
}

ResumableFile::~ResumableFile() {
  if (fd_ >= 0) ::close(fd_);
}

void ResumableFile::truncate(size_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) fail_errno(partial_, "truncate");
  size_ = size;
}

void ResumableFile::write(std::span<const std::byte> bytes) {
  io::write_at(fd_, partial_, size_, bytes);
  size_ += bytes.size();
}

void ResumableFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void ResumableFile::write_at(size_t offset, std::span<const std::byte> bytes) {
  check_patch(partial_, offset, bytes.size(), size_);
  io::write_at(fd_, partial_, offset, bytes);
}

void ResumableFile::sync() {
  if (::fdatasync(fd_) != 0) fail_errno(partial_, "sync");
}

void ResumableFile::commit() { publish(fd_, partial_, path_); }

void ResumableFile::remove() {
  if (::unlink(partial_.c_str()) != 0) fail_errno(partial_, "remove");
}

void rename_synced(const std::string& from, const std::string& to) {
  const std::string target = replaceable_target(to);
  int fd = ::open(from.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail_errno(from, "open");
  publish(fd, from, target);
}

}  // namespace rf::io
