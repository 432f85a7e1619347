#include "input_files.h"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "rf/io/error.h"
#include "rf/io/written_files.h"

namespace rf::data {
namespace {

namespace fs = std::filesystem;

// Does not follow links to directories, which may form cycles.
std::vector<std::string> files_in(const std::string& directory, Format format) {
  std::vector<std::string> files;
  fs::path at = directory;  // for messages: the error for an unreadable directory lacks its path
  try {
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      at = entry.path();
      if (is_searched_for(at.string(), format) && !entry.is_directory()) files.push_back(at.string());
    }
  } catch (const fs::filesystem_error& error) {
    fail("input", "{} must be readable, got: {}", at.string(), error.code().message());
  }
  if (files.empty()) {
    fail("input", "a directory must hold a file named as {}, got {}", searched_formats(format), directory);
  }
  return files;
}

bool is_pattern(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

// Adds the files that `rest`, the components of a pattern from `begin` on, matches below `directory` ("" for here).
void match(const fs::path& directory, const std::vector<std::string>& components, size_t begin,
           std::vector<std::string>& files) {
  const std::string& component = components[begin];
  const bool is_last = begin + 1 == components.size();
  if (!is_pattern(component)) {
    const fs::path path = directory / component;
    if (!is_last && fs::is_directory(path)) match(path, components, begin + 1, files);
    if (is_last && fs::exists(path) && !fs::is_directory(path)) files.push_back(path.string());
    return;
  }
  const bool any_depth = component == "**";
  if (any_depth && !is_last) match(directory, components, begin + 1, files);
  for (const auto& entry : fs::directory_iterator(directory.empty() ? "." : directory)) {
    const std::string name = entry.path().filename().string();
    const fs::path path = directory / name;
    if (::fnmatch(any_depth ? "*" : component.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    std::error_code unknown;  // ignored: a link to itself is a name like others
    if (!entry.is_directory(unknown)) {
      if (is_last) files.push_back(path.string());
    } else if (any_depth) {
      if (!entry.is_symlink()) match(path, components, begin, files);
    } else if (!is_last) {
      match(path, components, begin + 1, files);
    }
  }
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  std::vector<std::string> components;
  const fs::path path(pattern);
  for (const fs::path& component : path.relative_path()) {
    if (!component.empty()) components.push_back(component.string());
  }
  std::vector<std::string> files;
  try {
    match(path.root_path(), components, 0, files);
  } catch (const fs::filesystem_error& error) {
    fail("input", "{} must be readable, got: {}", error.path1().string(), error.code().message());
  }
  if (files.empty()) fail("input", "a pattern must match at least one file, got {}", pattern);
  return files;
}

std::vector<std::string> expand(const std::string& input, Format format) {
  if (input == kStandardInput) return {input};
  if (input.empty()) fail("input", "an input must have a name, got an empty one");
  std::error_code error;
  const fs::file_status status = fs::status(input, error);
  std::vector<std::string> files{input};
  if (fs::is_directory(status)) {
    files = files_in(input, format);
  } else if (!fs::exists(status)) {
    if (!is_pattern(input)) {
      fail("input", "{} must exist, got: {}", input, error ? error.message() : std::strerror(ENOENT));
    }
    files = files_of_pattern(input);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// `input`: the input by which the path was found. Reading a pipe that the user did not name might wait forever.
void check_file(const std::string& path, const std::string& input) {
  if (path == kStandardInput) return;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_meant_pipe = fs::is_fifo(status) && path == input;
  if (fs::exists(status) && !fs::is_regular_file(status) && !is_meant_pipe) {
    fail("input", "an input must be a file, a directory, or a pipe that is named itself, got {}", path);
  }
  if (::access(path.c_str(), R_OK) != 0) fail("input", "{} must be readable, got: {}", path, std::strerror(errno));
}

}  // namespace

FileList list_files(const std::vector<std::string>& inputs, Format format, const std::vector<std::string>& outputs,
                    const std::string& replaced) {
  FileList list;
  const io::WrittenFiles written(outputs);
  std::set<fs::path> seen;
  for (const std::string& input : inputs) {
    for (std::string& path : expand(input, format)) {
      check_file(path, input);
      std::error_code unnamed;  // a pipe of the shell does not have a canonical path
      const fs::path canonical = fs::canonical(path, unnamed);
      if (!seen.insert(unnamed ? fs::path(path) : canonical).second) continue;
      const std::string output = written.holding(path);
      if (path == input || (!output.empty() && output == replaced)) written.check_inputs({path});
      (!output.empty() ? list.left_out : list.files).push_back(std::move(path));
    }
  }
  if (list.files.empty()) {
    fail("input", "at least one file, directory or pattern must be given, got none{}",
         list.left_out.empty() ? "" : " except the command's own outputs");
  }
  return list;
}

int64_t total_bytes(const std::vector<std::string>& files) {
  int64_t sum = 0;
  for (const std::string& path : files) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) sum += static_cast<int64_t>(fs::file_size(path, error));
  }
  return sum;
}

}  // namespace rf::data
