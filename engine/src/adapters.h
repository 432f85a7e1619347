// Adapters in two forms. A checkpoint (rf/model/config.h) has them as torch's parametrizations store them:
// "<module>.parametrizations.weight.original" [rows, columns], and "<module>.parametrizations.weight.0.lora_A" and
// ".lora_B" with a part for each task: [tasks, rank, columns] and [tasks, rows, rank], of embeddings
// [tasks, rows, rank] and [tasks, rank, columns]. PEFT saves one in a folder, adapter_config.json and
// adapter_model.safetensors: the same two factors under "base_model.model.<module>", and tensors in place of the
// model's (modules_to_save, biases).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rf/model/checkpoint_files.h"
#include "rf/model/config.h"

namespace rf::engine {

// The change of a matrix [rows, columns] by a task: it adds left times right.
struct LowRank {
  int64_t rank = 0;
  std::vector<float> left, right;  // [rows, rank], [rank, columns], with the scale
  // to[i] += row[i]
  void add_row(int64_t row, float* to) const;
};

inline constexpr const char *kAdapterConfigFile = "adapter_config.json",
                            *kAdapterWeightsFile = "adapter_model.safetensors";

struct AdapterChoice {
  std::string task;    // "": the matrices without an adapter
  std::string folder;  // of PEFT; "": none
};

// The tensors of a model with its adapters.
class Adapters {
 public:
  // Throws Error for a task that the model does not have, for adapters that are missing or have other shapes, and for
  // a folder whose adapter is not plain LoRA for this model. head: that is loaded.
  Adapters(std::shared_ptr<const CheckpointFiles> files, const ModelConfig& config, Head head,
           const AdapterChoice& choice);

  const CheckpointFiles& files() const { return *files_; }
  // The tensors of the file, named as they would be without adapters.
  const std::vector<NamedShape>& shapes() const { return shapes_; }
  const io::TensorView& at(const std::string& name) const;
  // What the adapter adds to a tensor; nullptr: nothing.
  const LowRank* change_of(const std::string& name) const;

 private:
  void add(const ModelConfig& config, const std::string& matrix, int64_t task);
  struct Folder;
  void add_folder(const ModelConfig& config, Head head, const std::string& folder);

  std::shared_ptr<const CheckpointFiles> files_;
  std::optional<io::SafetensorsFile> saved_;  // the folder's
  std::vector<NamedShape> shapes_;
  std::map<std::string, const io::TensorView*> views_;  // names that the file lacks, and replaced tensors
  std::map<std::string, LowRank> changes_;
};

// The elements from `begin` on of an adapter's tensor. Throws Error unless they are finite.
std::vector<float> adapter_values(const io::TensorView& view, int64_t begin, int64_t count);

}  // namespace rf::engine
