// The files that inputs stand for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rf/data/format.h"

namespace rf::data {

inline constexpr const char* kStandardInput = "-";
// For messages: the path, or "standard input".
inline std::string source_name(const std::string& path) { return path == kStandardInput ? "standard input" : path; }

// The files of `inputs` (ReadOptions::inputs), each once. In a directory these are the files for which
// is_searched_for(). Globs match files only, and names with a leading dot only if the pattern has it. Files that
// are written (WrittenFiles of `outputs`) are left out; one that is named itself, or is `replaced`, is an Error. Throws
// Error as DocumentReader does.
struct FileList {
  std::vector<std::string> files, left_out;
};
FileList list_files(const std::vector<std::string>& inputs, Format format, const std::vector<std::string>& outputs = {},
                    const std::string& replaced = "");

// The size on disk of the regular files among them.
int64_t total_bytes(const std::vector<std::string>& files);

}  // namespace rf::data
