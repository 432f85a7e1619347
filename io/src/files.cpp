// Files on POSIX: memory maps, locks, and atomic replacement, which writes to a temporary name in the same directory,
// fsyncs, renames, and fsyncs the directory. An AtomicFile does not lock: with two writers of one name, the last rename
// wins, and each file is complete.
#include "rf/io/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::io {

// Reading a page of a mapped file that is lost, because another program truncated the file or the disk failed, raises
// SIGBUS. A handler cannot throw. It looks up the file by the address in a table of atomics, writes a message prepared
// when the file was mapped, and ends the process. It calls only functions that POSIX allows in a handler.
struct MappedPlace {
  std::atomic<bool> taken;
  std::atomic<const std::byte*> begin;  // set last and cleared first: unless it is nullptr, the entry is complete
  std::atomic<size_t> size, message_size;
  std::atomic<const char*> message;
};

// One table for the process: the libraries that contain this file export it, and so share it. It has space for the
// shards of terabytes; further files are mapped without an entry.
std::array<MappedPlace, 8192> mapped_places;

// Registers a mapped file while it exists, if one of a fixed number of entries is free.
class MappedRange {
 public:
  MappedRange(std::span<const std::byte> bytes, const std::string& path);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

 private:
  MappedPlace* place_ = nullptr;
  std::string message_;
};

namespace {

constexpr int kBadInput = 1;  // the program's exit code for rf::Error

void write_to_stderr(const char* text, size_t size) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, size);
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  for (const MappedPlace& place : mapped_places) {
    const std::byte* const begin = place.begin.load();
    if (begin == nullptr || address < begin || address >= begin + place.size.load()) continue;
    write_to_stderr(place.message.load(), place.message_size.load());
    ::_exit(kBadInput);
  }
  ::signal(SIGBUS, SIG_DFL);  // not one of our files: the instruction runs again without a handler
}

namespace fs = std::filesystem;

[[noreturn]] void fail_errno(const std::string& path, std::string_view action) {
  const int code = errno;
  if (code == ENOENT) fail<MissingFileError>(path, "cannot {}: {}", action, std::strerror(code));
  fail(path, "cannot {}: {}", action, std::strerror(code));
}

// The name to rename to: for a symbolic link its target, so that the link is kept. A device, a pipe or a directory is
// refused, because the rename would replace it.
std::string replaceable_target(std::string path) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    const fs::path target = fs::canonical(path, error);
    if (error) fail(path, "cannot resolve the symbolic link: {}", error.message());
    path = target.string();
  }
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    fail(path, "a file is written only over a regular file, got a directory, a pipe or a device");
  return path;
}

// Writes all bytes at an offset.
void write_all(int fd, const std::string& path, size_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno(path, "write");
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<size_t>(written);
  }
}

// Completes a file: syncs it, closes it and renames it, durably.
void publish(int& fd, const std::string& temporary, const std::string& path) {
  if (::fsync(fd) != 0) fail_errno(path, "sync");
  // close() may report a deferred write error (network file systems); the descriptor is closed either way.
  if (::close(std::exchange(fd, -1)) != 0) fail_errno(path, "close");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail_errno(path, "rename the temporary file");
  const std::string parent = fs::path(path).parent_path().string();
  sync_directory(parent.empty() ? "." : parent);
}

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

size_t size_of_regular(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno(path, "read the size");
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

// True if `fd` is still the file with that name: another process may have renamed it before it was locked.
bool is_file_of_name(int fd, const std::string& name) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(name.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

MappedRange::MappedRange(std::span<const std::byte> bytes, const std::string& path)
    : message_(fmt::format("[{}] a file must keep its size while it is read, got a part of it that is gone\n",
                           escaped(path, path.size()))) {
  for (MappedPlace& place : mapped_places) {
    if (place.taken.load(std::memory_order_relaxed) || place.taken.exchange(true)) continue;
    place.size = bytes.size();
    place.message = message_.data();
    place.message_size = message_.size();
    place.begin = bytes.data();
    place_ = &place;
    return;
  }
}

MappedRange::~MappedRange() {
  if (place_ == nullptr) return;
  place_->begin = nullptr;
  place_->taken = false;
}

void report_lost_pages() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file(path, kReadFlags);
  size_ = size_of_regular(file.get(), path);
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

UnfinishedFile::UnfinishedFile(std::string path) : path_(replaceable_target(std::move(path))) {
  std::error_code error;  // ignored: creating the file reports it
  fs::create_directories(fs::path(path_).parent_path(), error);
}

UnfinishedFile::~UnfinishedFile() {
  if (fd_ >= 0) ::close(fd_);
}

void UnfinishedFile::write(std::span<const std::byte> bytes) {
  write_all(fd_, shown_, size_, bytes);
  size_ += bytes.size();
}

void UnfinishedFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void UnfinishedFile::write_at(size_t offset, std::span<const std::byte> bytes) {
  if (offset > size_ || bytes.size() > size_ - offset) {
    fail(shown_, "a patch must lie within the {} bytes written, got {} bytes at {}", size_, bytes.size(), offset);
  }
  write_all(fd_, shown_, offset, bytes);
}

void UnfinishedFile::commit() {
  publish(fd_, written_, path_);
  committed_ = true;
}

AtomicFile::AtomicFile(std::string path) : UnfinishedFile(std::move(path)) {
  std::tie(written_, fd_) = open_temporary(path_);
  shown_ = path_;
  constexpr mode_t kPermissions = 0777;
  if (struct stat old{}; ::stat(path_.c_str(), &old) == 0) ::fchmod(fd_, old.st_mode & kPermissions);
}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(written_.c_str());
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string read_file(const std::string& path) {
  const Descriptor file(path, kReadFlags);
  const auto check_size = [&path](size_t size) {
    if (size > kMaxWholeFileBytes)
      fail(path, "a file that is read whole must have at most {} bytes, got {}", kMaxWholeFileBytes, size);
  };
  check_size(size_of_regular(file.get(), path));
  std::string text;
  constexpr size_t kBlock = size_t{1} << 18;
  size_t used = 0;
  for (;;) {
    text.resize(used + kBlock);
    const ssize_t count = ::read(file.get(), text.data() + used, kBlock);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_errno(path, "read");
    used += static_cast<size_t>(count);
    check_size(used);  // the file may grow
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
  std::error_code error;
  const fs::file_status link = fs::symlink_status(path, error);
  if (!fs::exists(link)) return false;
  if (fs::is_symlink(link) && !fs::exists(path, error)) {
    fail<MissingFileError>(path, "a link must lead to a file, got one to {}, which does not exist (download it again?)",
                           printable(fs::read_symlink(path, error).string()));
  }
  return true;
}

const char* found_without_model(const std::string& folder) {
  return has_file(folder + "/adapter_config.json")
             ? "an adapter of PEFT (adapter_config.json; give its model, and this folder by --adapter)"
             : "none";
}

void release_pages(std::span<const std::byte> bytes) {
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, end = (begin + bytes.size()) / kPage * kPage;
  // On failure, the memory merely stays in use.
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

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

ResumableFile::ResumableFile(std::string path) : UnfinishedFile(std::move(path)) {
  written_ = shown_ = path_ + ".part";
  while (fd_ < 0) {
    fd_ = ::open(written_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd_ < 0) fail_errno(written_, "create");
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_errno(written_, "lock");
      fail(path_, "must be written by one process at a time, got another one that writes {}", written_);
    }
    size_ = size_of_regular(fd_, written_);
    if (!is_file_of_name(fd_, written_)) ::close(std::exchange(fd_, -1));
  }
}

void ResumableFile::truncate(size_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) fail_errno(written_, "truncate");
  size_ = size;
}

void ResumableFile::sync() {
  if (::fdatasync(fd_) != 0) fail_errno(written_, "sync");
}

void ResumableFile::remove() {
  if (::unlink(written_.c_str()) != 0) fail_errno(written_, "remove");
}

void rename_synced(const std::string& from, const std::string& to) {
  const std::string target = replaceable_target(to);
  int fd = ::open(from.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail_errno(from, "open");
  publish(fd, from, target);
}

}  // namespace rf::io
