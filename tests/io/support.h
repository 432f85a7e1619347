// What the tests of io and model share: a directory that goes away, a file in memory, the check of an error's words.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "temporary_files.h"

namespace rf::testing {

using TempDir = tests::Directory;

// A file without a disk behind it, for tests that make thousands of them.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("rf_test", 0)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      throw std::runtime_error("cannot make a file in memory");
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_;
};

// The action throws rf::Error, and the message has all of the words: the place, the rule, the offending value.
template <typename Action>
void expect_error(Action action, std::initializer_list<std::string_view> words) {
  tests::expect_parts(tests::error_of(action), words);
}

}  // namespace rf::testing

namespace rf {
using rf::testing::expect_error, rf::testing::MemoryFile, rf::testing::TempDir;
}
