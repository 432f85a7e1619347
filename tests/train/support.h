// What the tests of train share: the message of an Error, and a temporary directory.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "rf/io/error.h"

namespace rf::train {

// Runs `call`, which must throw rf::Error, and returns its message.
template <typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no rf::Error was thrown";
  return {};
}

class TemporaryPath {
 public:
  TemporaryPath() {
    std::string name = (std::filesystem::temp_directory_path() / "rf_train_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryPath() { std::filesystem::remove_all(path_); }
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return fmt::format("{}/{}", path_, name); }

 private:
  std::string path_;
};

}  // namespace rf::train
