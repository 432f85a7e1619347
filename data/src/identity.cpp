#include "rf/data/identity.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
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

std::string model_identity(const std::string& model_dir, const text::LoadOptions& load) {
  std::vector<std::string> paths = load.user_dictionaries;
  if (!load.dictionary.empty()) paths.push_back(load.dictionary);
  for (const std::string_view name : text::kTokenizerFiles) {
    const std::string path = fmt::format("{}/{}", model_dir, name);
    if (io::has_file(path)) paths.push_back(path);
  }
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(model_dir)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  paths.push_back(model_dir + "/config.json");
  std::sort(paths.begin(), paths.end());
  return identity_of_files(paths);
}

std::string first_difference(const nlohmann::json& before, const nlohmann::json& now) {
  const nlohmann::json difference = nlohmann::json::diff(before, now);
  if (difference.empty()) return "";
  const nlohmann::json::json_pointer place(difference.at(0).at("path").get<std::string>());
  const auto value = [&](const nlohmann::json& in) { return in.contains(place) ? in.at(place).dump() : "nothing"; };
  return fmt::format("{} at {} where there was {}", value(now), place.to_string(), value(before));
}

}  // namespace rf::data
