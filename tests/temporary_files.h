// What tests of several modules share: a directory that goes away, its files, and the message of an Error.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "rf/io/error.h"

namespace rf::tests {

inline void write(const std::string& path, std::string_view text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Directory {
 public:
  explicit Directory(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "rf_test_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string operator/(const std::string& name) const { return fmt::format("{}/{}", path_, name); }
  const std::string& path() const { return path_; }
  size_t entries() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {})); }
  // The path of the file that is written.
  std::string write(const std::string& name, std::string_view text) const {
    tests::write(*this / name, text);
    return *this / name;
  }

 private:
  std::string path_;
};

// The message of the Error that `action` throws; a failure when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no rf::Error";
  return "";
}

inline void expect_has(const std::string& message, std::string_view part) {
  EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

inline void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) expect_has(message, part);
}

}  // namespace rf::tests
