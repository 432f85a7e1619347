// The tensors of a model directory: model.safetensors, or the shards that model.safetensors.index.json names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rf/io/safetensors.h"
#include "rf/model/weights.h"

namespace rf {

class CheckpointFiles {
 public:
  // Throws Error for a directory without such files, a damaged file, an index that is not one, and a tensor in two
  // shards. `where`: of messages about the directory.
  CheckpointFiles(const std::string& model_dir, const std::string& where);

  // By name, without what wrappers of torch put in front; valid as long as this object.
  const std::map<std::string, const io::TensorView*>& tensors() const { return tensors_; }
  const io::TensorView& at(const std::string& name) const { return *tensors_.at(name); }
  std::vector<NamedShape> shapes() const;

 private:
  void add(const std::string& path);

  std::vector<io::SafetensorsFile> files_;
  std::map<std::string, const io::TensorView*> tensors_;
};

// The one rule for an output matrix (or bias) that config.json ties to another tensor while the file stores both: equal
// ones are one tensor; of different ones both are used, as in transformers 5 (PreTrainedModel.tie_weights), and the
// warning that this returns is shown. nullopt for equal ones.
std::optional<std::string> untied_warning(const CheckpointFiles& files, const std::string& copy,
                                          const std::string& source);
// Adds the tied tensors of an encoder that the file has of its own to match.names; returns the warnings.
std::vector<std::string> add_untied(const CheckpointFiles& files, const ModelConfig& config, WeightMatch& match);

}  // namespace rf
