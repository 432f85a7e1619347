// The tensors of a model directory: model.safetensors, or the shards that model.safetensors.index.json names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rf/io/safetensors.h"
#include "rf/model/weights.h"

namespace rf {

// The files with the tensors of a model directory; empty if they are missing. Throws Error for an invalid index.
std::vector<std::string> checkpoint_paths(const std::string& model_dir);

class CheckpointFiles {
 public:
  // Throws Error for a directory without such files, a damaged file, an invalid index, and a tensor in two shards.
  // `where`: for messages about the directory.
  CheckpointFiles(const std::string& model_dir, const std::string& where);

  // By name, without the prefixes of torch wrappers; valid as long as this object.
  const std::map<std::string, const io::TensorView*>& tensors() const { return tensors_; }
  const io::TensorView& at(const std::string& name) const { return *tensors_.at(name); }
  std::vector<NamedShape> shapes() const;

 private:
  void add(const std::string& path);

  std::vector<io::SafetensorsFile> files_;
  std::map<std::string, const io::TensorView*> tensors_;
};

// The rule for an output matrix (or bias) that config.json ties to another tensor although the file stores both. Equal
// tensors are treated as one. If they differ, both are used, as in transformers 5 (PreTrainedModel.tie_weights): the
// copy is added to match.names, and the result has a warning to show.
std::vector<std::string> add_untied(const CheckpointFiles& files, const ModelConfig& config, WeightMatch& match);

}  // namespace rf
