#include "rf/data/identity.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "rf/io/files.h"
#include "shard_format.h"

namespace rf::data {

std::string identity(const std::string& data_dir) {
  std::vector<std::string> shards;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir)) {
    if (entry.path().extension() == ".rfs") shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  std::string headers;
  for (const std::string& shard : shards) {
    const io::MappedFile mapped(shard);
    const size_t count = std::min(sizeof(ShardHeader), mapped.bytes().size());
    headers.append(reinterpret_cast<const char*>(mapped.bytes().data()), count);
  }
  return fmt::format("{:016x}", XXH3_64bits(headers.data(), headers.size()));
}

std::string identity_of_files(std::span<const std::string> paths) {
  uint64_t hash = 0;
  for (const std::string& path : paths) {
    const io::MappedFile file(path);
    hash = XXH3_64bits_withSeed(file.bytes().data(), file.bytes().size(), hash);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace rf::data
