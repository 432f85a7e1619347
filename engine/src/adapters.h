// Adapters of a checkpoint (rf/model/config.h), as torch's parametrizations store them: "<module>.parametrizations.
// weight.original" [rows, columns], and "<module>.parametrizations.weight.0.lora_A" and ".lora_B" with a part for each
// task, [tasks, rank, columns] and [tasks, rows, rank], of embeddings [tasks, rows, rank] and [tasks, rank, columns].
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rf/model/checkpoint_files.h"
#include "rf/model/config.h"

namespace rf::engine {

// What a task adds to a matrix [rows, columns]: left times right.
struct LowRank {
  int64_t rank = 0;
  std::vector<float> left, right;  // [rows, rank], [rank, columns], with the scale
  // to[i] += row[i]
  void add_row(int64_t row, float* to) const;
};

// A file with such tensors.
class Adapters {
 public:
  // task: "" for the matrices as they were trained before. Throws Error for a task that the model does not have, and
  // for adapters that are missing or have other shapes.
  Adapters(const CheckpointFiles& files, const ModelConfig& config, const std::string& task);

  // The tensors of the file with those names that they would have without adapters.
  const std::vector<NamedShape>& shapes() const { return shapes_; }
  // The file's name of such a tensor.
  std::string in_file(const std::string& name) const;
  // What the task adds to it; nullptr: nothing.
  const LowRank* change_of(const std::string& name) const;

 private:
  void add(const CheckpointFiles& files, const ModelConfig& config, const std::string& matrix, int64_t task);

  std::vector<NamedShape> shapes_;
  std::map<std::string, std::string> in_file_;
  std::map<std::string, LowRank> changes_;
};

}  // namespace rf::engine
