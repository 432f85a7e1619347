// Files: memory maps, atomic replacement, locks, small reads. Every error names the path and the system's reason.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rf::io {

class MappedRange;

// A file mapped read-only. Writers that replace files by name (AtomicFile) do not change a mapping. If a program
// truncates the file in place, reading the lost part is a SIGBUS (report_lost_pages), except that the rest of the page
// with the new end reads as zeros.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<MappedRange> range_;
};

// From now on a SIGBUS in a mapped file ends the process with exit code 1 and a message on stderr that names the file.
// For programs, not for libraries, because a signal handler belongs to the whole process.
void report_lost_pages();

// Releases the memory of the whole pages within `bytes`, a part of a MappedFile. Later reads load the pages from the
// file again.
void release_pages(std::span<const std::byte> bytes);

// A file that is written under another name, in a folder that is made if it is missing. Writes are not buffered.
class UnfinishedFile {
 public:
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  void write(std::span<const std::byte> bytes);  // at the end
  void write(std::string_view text);
  void write_at(size_t offset, std::span<const std::byte> bytes);  // overwrites bytes that are already written
  size_t size() const { return size_; }
  void commit();  // syncs the file and gives it its name

 protected:
  explicit UnfinishedFile(std::string path);
  ~UnfinishedFile();

  std::string path_, written_, shown_;  // the file's name, that until commit(), and the one in messages
  int fd_ = -1;
  size_t size_ = 0;
  bool committed_ = false;
};

// A file that appears under its name only after commit(). Without it, as after an exception, the temporary file is
// removed and an existing file is unchanged. The new file gets the permissions of the file that it replaces.
class AtomicFile : public UnfinishedFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
};

// A file that one or several runs of a program write: `path`.part until commit(). Unlike an AtomicFile it stays when a
// run is killed or fails. Only one process at a time can open it.
class ResumableFile : public UnfinishedFile {
 public:
  // Opens the partial file and creates it if absent. Throws Error while another process has it open.
  explicit ResumableFile(std::string path);
  const std::string& partial_path() const { return written_; }
  void truncate(size_t size);
  void sync();
  void remove();  // the partial file
};

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

// Whether something exists under this name. Throws Error for a dangling link: hub caches consist of links, and a
// deleted file must not count as an optional file that is absent.
bool has_file(const std::string& path);

// Describes a folder without config.json, for messages of readers of models and tokenizers.
const char* found_without_model(const std::string& folder);

void write_file(const std::string& path, std::string_view text);  // atomic
std::string read_file(const std::string& path);                   // a regular file, not a pipe
// Strict JSON: duplicate keys, NaN, bytes that are not UTF-8 and nesting deeper than 64 are errors with line and
// column.
nlohmann::json read_json(const std::string& path);
nlohmann::json parse_json(std::string_view text, std::string_view where);  // where: names the text in messages
void sync_directory(const std::string& path);                              // makes renames in it durable
void rename_synced(const std::string& from, const std::string& to);        // gives a complete file its name, durably

}  // namespace rf::io
