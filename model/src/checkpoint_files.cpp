// Finds and opens the files of a checkpoint (see the header).
#include "rf/model/checkpoint_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/shown_text.h"

namespace rf {

namespace {

namespace fs = std::filesystem;

// Shards named by model.safetensors.index.json, each a plain file name in the same directory.
std::set<std::string> shard_names(const fs::path& index) {
  const nlohmann::json json = io::read_json(index);
  std::set<std::string> names;
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    fail(index.string(), "a shard index must have an object weight_map, got none");
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      fail(index.string(), "a shard must be the name of a file in the directory of the index, got {} for {}",
           io::shown(file), io::printable(tensor));
    }
    names.insert(file.get<std::string>());
  }
  return names;
}

// The name in the model without the prefixes of torch.nn.DataParallel ("module.") and torch.compile ("_orig_mod.").
std::string without_wrappers(std::string name) {
  constexpr std::string_view kCompiled = "_orig_mod.", kParallel = "module.";
  while (name.starts_with(kCompiled) || name.starts_with(kParallel))
    name.erase(0, name.starts_with(kCompiled) ? kCompiled.size() : kParallel.size());
  for (size_t at; (at = name.find("._orig_mod.")) != std::string::npos;) name.erase(at, kCompiled.size());
  return name;
}

// Also true for a dangling link, so that opening it reports the reason.
bool has_entry(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

}  // namespace

std::vector<std::string> checkpoint_paths(const std::string& model_dir) {
  const fs::path dir = model_dir;
  if (has_entry(dir / "model.safetensors")) return {dir / "model.safetensors"};
  const fs::path index = dir / "model.safetensors.index.json";
  std::vector<std::string> paths;
  if (!has_entry(index)) return paths;
  for (const std::string& name : shard_names(index)) paths.push_back(dir / name);
  return paths;
}

CheckpointFiles::CheckpointFiles(const std::string& model_dir, const std::string& where) {
  const fs::path dir = model_dir;
  const std::vector<std::string> paths = checkpoint_paths(model_dir);
  files_.reserve(paths.size());  // views point into the files
  for (const std::string& path : paths) add(path);
  if (!paths.empty()) return;
  if (has_entry(dir / "pytorch_model.bin") || has_entry(dir / "pytorch_model.bin.index.json")) {
    fail(where,
         "weights must be model.safetensors, got only pytorch_model.bin in {}; python -m roformer_cpp.convert {} "
         "NEW_DIR converts them",
         model_dir, io::shell_word(model_dir));
  } else {
    fail<MissingFileError>(where, "a model directory must hold model.safetensors, got none in {}", model_dir);
  }
}

void CheckpointFiles::add(const std::string& path) {
  files_.emplace_back(path);
  for (const io::TensorView& view : files_.back().tensors()) {
    if (!tensors_.emplace(without_wrappers(view.name), &view).second)
      fail(path, "a tensor must be there once, got {} twice", io::printable(view.name));
  }
}

std::vector<NamedShape> CheckpointFiles::shapes() const {
  std::vector<NamedShape> shapes;
  for (const auto& [name, view] : tensors_) shapes.push_back({name, view->shape});
  return shapes;
}

namespace {

std::optional<std::string> untied_warning(const CheckpointFiles& files, const std::string& copy,
                                          const std::string& source) {
  const io::TensorView &of_copy = files.at(copy), &of_source = files.at(source);
  if (of_copy.dtype == of_source.dtype && std::ranges::equal(of_copy.data, of_source.data)) return std::nullopt;
  return fmt::format("tie_word_embeddings is true, but {} and {} differ, so the model is computed with both",
                     io::printable(copy), io::printable(source));
}

}  // namespace

std::vector<std::string> add_untied(const CheckpointFiles& files, const ModelConfig& config, WeightMatch& match) {
  std::vector<std::string> warnings;
  for (const auto& [name, in_file] : match.tied_copies) {
    const auto warning = untied_warning(files, in_file, match.names.at(tied_source(config, name)));
    if (!warning) continue;
    match.names.emplace(name, in_file);
    warnings.push_back(*warning);
  }
  return warnings;
}

}  // namespace rf
