#include "rf/io/written_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "rf/io/error.h"

namespace rf::io {
namespace {

// A file or a directory; pipes and devices store nothing that writing could replace.
bool is_kept(const struct stat& status) { return S_ISREG(status.st_mode) || S_ISDIR(status.st_mode); }

// Checks that an output can be created: a directory, or the nearest one above a path that is absent, must be writable.
void check_can_be_made(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  if (std::filesystem::is_directory(at, error) && ::access(at.c_str(), W_OK | X_OK) != 0)
    fail("output", "{} must be writable for the output {}, got: {}", at.string(), path, std::strerror(errno));
}

}  // namespace

WrittenFiles::WrittenFiles(const std::vector<std::string>& outputs) {
  struct stat status {};
  for (const std::string& path : outputs) {
    if (path.empty() || path == "-") continue;
    check_can_be_made(path);
    if (::stat(path.c_str(), &status) == 0 && is_kept(status)) outputs_.push_back({status.st_dev, status.st_ino, path});
  }
  for (const auto& [stream, name] : {std::pair{STDOUT_FILENO, "standard output"}, {STDERR_FILENO, "standard error"}}) {
    if (::fstat(stream, &status) == 0 && S_ISREG(status.st_mode))
      outputs_.push_back({status.st_dev, status.st_ino, name});
  }
}

std::string WrittenFiles::holding(const std::string& path) const {
  const auto name_of = [this](const struct stat& status) {
    for (const Output& output : outputs_) {
      if (is_kept(status) && output.device == status.st_dev && output.number == status.st_ino) return output.name;
    }
    return std::string();
  };
  struct stat status {};
  if (path == "-") return ::fstat(STDIN_FILENO, &status) == 0 ? name_of(status) : "";
  std::error_code error;
  for (std::filesystem::path at = std::filesystem::canonical(path, error); !error; at = at.parent_path()) {
    std::string name = ::stat(at.c_str(), &status) == 0 ? name_of(status) : "";
    if (!name.empty() || at == at.parent_path()) return name;
  }
  return "";
}

void WrittenFiles::check_inputs(const std::vector<std::string>& inputs) const {
  for (const std::string& input : inputs) {
    const std::string output = input.empty() ? "" : holding(input);
    if (output.empty()) continue;
    fail("output", "the output must not replace the input, got {} for the input {}", output,
         input == "-" ? "from standard input" : input);
  }
}

}  // namespace rf::io
