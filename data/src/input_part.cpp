#include "input_part.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "rf/io/error.h"

namespace rf::data {

FileRange files_of_part(const std::vector<int64_t>& sizes, int64_t number, int64_t parts) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), files = std::ssize(sizes);
  std::vector<int64_t> ends{0};  // ends of the parts, in files
  int64_t bytes = 0, file = 0;
  for (int64_t part = 1; part <= parts; ++part) {
    // A file belongs to the part that contains its midpoint.
    const int64_t share = total / parts * part + total % parts * part / parts;
    while (file < files && bytes + sizes[static_cast<size_t>(file)] / 2 < share) {
      bytes += sizes[static_cast<size_t>(file++)];
    }
    ends.push_back(part == parts ? files : std::clamp(file, ends.back() + 1, files - (parts - part)));
  }
  return {static_cast<size_t>(ends[static_cast<size_t>(number - 1)]),
          static_cast<size_t>(ends[static_cast<size_t>(number)])};
}

std::vector<int64_t> sizes_of(const std::vector<std::string>& files) {
  std::vector<int64_t> sizes;
  for (const std::string& path : files) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) {
      fail("prepare", "the inputs of a part must be files, which every machine sees, got {}", path);
    }
    sizes.push_back(static_cast<int64_t>(std::filesystem::file_size(path)));
  }
  return sizes;
}

std::string hash_of_files(const std::vector<std::string>& files, const std::vector<int64_t>& sizes) {
  std::string text;
  for (size_t i = 0; i < files.size(); ++i) text += fmt::format("{}\n{}\n", files[i], sizes[i]);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace rf::data
