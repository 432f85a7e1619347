// The identity of a model directory (model_identity.h).
#include "model_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "rf/data/identity.h"
#include "rf/io/files.h"

namespace rf::train {

namespace fs = std::filesystem;

std::string model_identity(const std::string& model_dir, const text::LoadOptions& load) {
  std::vector<std::string> paths = load.user_dictionaries;
  if (!load.dictionary.empty()) paths.push_back(load.dictionary);
  for (const std::string_view name : text::kTokenizerFiles) {
    const std::string path = fmt::format("{}/{}", model_dir, name);
    if (io::has_file(path)) paths.push_back(path);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(model_dir)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  paths.push_back(model_dir + "/config.json");
  std::sort(paths.begin(), paths.end());
  return data::identity_of_files(paths);
}

}  // namespace rf::train
