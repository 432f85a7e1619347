// Small model directories with random weights, and what damages them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/support.h"
#include "rf/engine/model.h"

namespace rf::tests {

// config.json of a model with two layers; `more` replaces and adds keys.
nlohmann::json small_config(const std::string& model_type, const std::string& architecture,
                            const nlohmann::json& more = nlohmann::json::object());

// The same with linear attention and rotary positions; `options`: of the attention.
nlohmann::json linear_config(const std::string& architecture, const std::string& feature_map,
                             const nlohmann::json& options = nlohmann::json::object(),
                             const nlohmann::json& more = nlohmann::json::object());

struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

class ModelDirectory {
 public:
  explicit ModelDirectory(const nlohmann::json& config);
  const std::string& path() const { return dir_.path(); }
  const nlohmann::json& config() const { return config_; }
  const std::vector<ModelTensor>& tensors() const { return tensors_; }  // as they were at first

  void write_config(const nlohmann::json& config) const;
  void write_weights(const std::vector<ModelTensor>& tensors) const;

 private:
  // In memory, where the system has such a file system: weights are synced, and hundreds are written.
  testing::TempDir dir_{std::filesystem::is_directory("/dev/shm") ? "/dev/shm"
                                                                  : std::filesystem::temp_directory_path()};
  nlohmann::json config_;
  std::vector<ModelTensor> tensors_;
};

// The message with which the directory is refused, "" if it opens and computes finite numbers.
std::string refusal(const std::string& model_dir);

// Sequences for calls of a model.
struct Batch {
  std::vector<int32_t> ids, types;
  std::vector<int64_t> offsets = {0};
  engine::Tokens tokens() const { return {.ids = ids, .offsets = offsets, .types = types}; }
};

// Ids of the vocabulary of small_config(), and types.
inline Batch batch_of(std::initializer_list<int> lengths) {
  Batch batch;
  for (const int length : lengths) {
    for (int i = 0; i < length; ++i) {
      batch.ids.push_back((7 * i + length) % 31);
      batch.types.push_back(i % 2);
    }
    batch.offsets.push_back(static_cast<int64_t>(batch.ids.size()));
  }
  return batch;
}

}  // namespace rf::tests
