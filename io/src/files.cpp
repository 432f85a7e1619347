// Memory maps and atomic replacement on POSIX: write to a temporary name in the same directory, fsync, rename, fsync
// the directory. An AtomicFile takes no lock: with two writers of one name the last rename wins, and each file is
// complete.
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
#include "rf/io/printable.h"
#include "writing.h"

namespace rf::io {
namespace {

// Closes the descriptor when the scope ends, even by an exception.
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
  io::write_at(fd_, path_, size_, bytes);
  size_ += bytes.size();
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::write_at(size_t offset, std::span<const std::byte> bytes) {
  check_patch(path_, offset, bytes.size(), size_);
  io::write_at(fd_, path_, offset, bytes);
}

void AtomicFile::commit() {
  publish(fd_, temporary_, path_);
  temporary_.clear();
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

bool has_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status link = fs::symlink_status(path, error);
  if (!fs::exists(link)) return false;
  if (fs::is_symlink(link) && !fs::exists(path, error)) {
    fail<MissingFileError>(path, "a link must lead to a file, got one to {}, which does not exist (download it again?)",
                           printable(fs::read_symlink(path, error).string()));
  }
  return true;
}

}  // namespace rf::io
