// A directory in memory, if the system has such a file system, whose files are replaced from run to run.
#pragma once

#include <string>
#include <string_view>

namespace rf::fuzz {

class MemoryDirectory {
 public:
  MemoryDirectory();
  ~MemoryDirectory();
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;

  const std::string& path() const { return path_; }
  // Replaces the file, or removes it if `bytes` is empty.
  void put(const std::string& name, std::string_view bytes) const;

 private:
  std::string path_;
};

}  // namespace rf::fuzz
