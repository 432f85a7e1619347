// Files that several runs of a program write.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rf::io {

// A file that one or several runs of a program write: `path`.part until commit() renames it. Unlike an AtomicFile it
// stays when a run is killed or fails. Only one process at a time can open it. Writes are not buffered.
class ResumableFile {
 public:
  // Opens the partial file and creates it if absent. Throws Error while another process has it open.
  explicit ResumableFile(std::string path);
  ~ResumableFile();
  ResumableFile(const ResumableFile&) = delete;
  ResumableFile& operator=(const ResumableFile&) = delete;
  const std::string& partial_path() const { return partial_; }
  size_t size() const { return size_; }
  void truncate(size_t size);
  void write(std::span<const std::byte> bytes);  // at the end
  void write(std::string_view text);
  void write_at(size_t offset, std::span<const std::byte> bytes);  // overwrites bytes that are already written
  void sync();
  void commit();
  void remove();  // the partial file

 private:
  std::string path_, partial_;
  int fd_ = -1;
  size_t size_ = 0;
};

// Gives the complete file its name, durably.
void rename_synced(const std::string& from, const std::string& to);
}  // namespace rf::io
