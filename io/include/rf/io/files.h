// Files: memory maps, atomic replacement, small reads. Every error names the path and the system's reason.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

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

// A file that appears under its name only after commit() has written, synced and renamed it. Without commit(), as after
// an exception, the temporary file is removed and an existing file is unchanged. The new file gets the permissions of
// the file that it replaces. Writes are not buffered.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void write_at(size_t offset, std::span<const std::byte> bytes);  // overwrites bytes that are already written
  size_t size() const { return size_; }
  void commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  size_t size_ = 0;
};

// Whether something exists under this name. Throws Error for a dangling link: hub caches consist of links, and a
// deleted file must not count as an optional file that is absent.
bool has_file(const std::string& path);

void write_file(const std::string& path, std::string_view text);  // atomic
std::string read_file(const std::string& path);                   // a regular file, not a pipe
// Strict JSON: duplicate keys, NaN, bytes that are not UTF-8 and nesting deeper than 64 are errors with line and
// column.
nlohmann::json read_json(const std::string& path);
nlohmann::json parse_json(std::string_view text, std::string_view where);  // where: names the text in messages
void sync_directory(const std::string& path);                              // makes renames in it durable

}  // namespace rf::io
