// Selects the input files of one part (prepare.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rf::data {

// The files of the part: a range of consecutive files. Each part has at least one file, and about as many bytes as the
// others if the file sizes allow it. number is from 1 to parts, which is at most the number of files.
struct FileRange {
  size_t begin, end;
};
FileRange files_of_part(const std::vector<int64_t>& sizes, int64_t number, int64_t parts);

// The size of each file. Throws Error for one without a size, such as a pipe.
std::vector<int64_t> sizes_of(const std::vector<std::string>& files);

// A hash of names and sizes, which identifies parts of the same input.
std::string hash_of_files(const std::vector<std::string>& files, const std::vector<int64_t>& sizes);

}  // namespace rf::data
