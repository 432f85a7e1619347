// Memory maps and atomic replacement on POSIX: write to a temporary name in the same directory, fsync, rename, fsync
// the directory. There are no locks: with two writers of one name the last rename wins, and each file is complete.
#include "rf/io/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lost_pages.h"
#include "rf/io/error.h"

namespace rf::io {
namespace {

[[noreturn]] void fail_errno(const std::string& path, std::string_view action) {
  const int code = errno;
  fail(path, "cannot {}: {}", action, std::strerror(code));
}

// Closes the descriptor when the scope ends, also by an exception.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (fd_ < 0) fail_errno(path, "open");
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// With O_NONBLOCK, opening a pipe does not wait for its writer; pipes and devices are refused here.
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK;

// Many times the size of the largest vocabulary, dictionary or configuration in use.
constexpr size_t kMaxWholeFileBytes = size_t{1} << 28;

size_t size_of_regular(const Descriptor& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(path, "read the size");
  if (!S_ISREG(status.st_mode)) fail(path, "must be a regular file, got a directory, a pipe or a device");
  return static_cast<size_t>(status.st_size);
}

// The name to rename to: for a symbolic link its target, so that the link is kept. A device, a pipe or a directory is
// refused, because the rename would replace it.
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

std::pair<std::string, int> open_temporary(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kAttempts = 1000;  // a killed process with the same id may have left files with these names
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = fmt::format("{}.tmp.{}.{}", path, ::getpid(), counter.fetch_add(1));
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return {std::move(name), fd};
    if (errno != EEXIST) break;
  }
  fail_errno(path, "create");
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(path, kReadFlags);
  size_ = size_of_regular(file, path);
  if (size_ == 0) return;  // mmap refuses an empty range
  void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail_errno(path, "map");
  data_ = static_cast<const std::byte*>(address);
  range_ = std::make_unique<MappedRange>(bytes(), path);
}

MappedFile::~MappedFile() {
  range_.reset();
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

AtomicFile::AtomicFile(std::string path) : path_(replaceable_target(std::move(path))) {
  std::tie(temporary_, fd_) = open_temporary(path_);
  constexpr mode_t kPermissions = 0777;
  if (struct stat old{}; ::stat(path_.c_str(), &old) == 0) ::fchmod(fd_, old.st_mode & kPermissions);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path_, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    size_ += static_cast<size_t>(written);
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::write_at(size_t offset, std::span<const std::byte> bytes) {
  if (offset > size_ || bytes.size() > size_ - offset) {
    fail(path_, "a patch must lie within the {} bytes written, got {} bytes at {}", size_, bytes.size(), offset);
  }
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path_, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail_errno(path_, "sync");
  // close() may report a deferred write error (network file systems); the descriptor is closed either way.
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno(path_, "close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(path_, "rename the temporary file");
  temporary_.clear();
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  sync_directory(parent.empty() ? "." : parent);
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string read_file(const std::string& path) {
  const Descriptor file(path, kReadFlags);
  const auto check_size = [&path](size_t size) {
    if (size > kMaxWholeFileBytes) {
      fail(path, "a file that is read whole must have at most {} bytes, got {}", kMaxWholeFileBytes, size);
    }
  };
  check_size(size_of_regular(file, path));
  std::string text;
  constexpr size_t kBlock = size_t{1} << 18;
  size_t used = 0;
  for (;;) {
    text.resize(used + kBlock);
    const ssize_t count = ::read(file.get(), text.data() + used, kBlock);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_errno(path, "read");
    used += static_cast<size_t>(count);
    check_size(used);  // one that grows
    if (count == 0) break;
  }
  text.resize(used);
  return text;
}

void sync_directory(const std::string& path) {
  const Descriptor directory(path, O_RDONLY | O_DIRECTORY);
  // EINVAL: a file system that cannot sync directories.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) fail_errno(path, "sync the directory");
}

}  // namespace rf::io
