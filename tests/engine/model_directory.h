// Small model directories with random weights, and what damages them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/support.h"

namespace rf::tests {

// config.json of a model with two layers; `more` replaces and adds keys.
nlohmann::json small_config(const std::string& model_type, const std::string& architecture,
                            const nlohmann::json& more = nlohmann::json::object());

// The same with linear attention and rotary positions; `options`: of the attention.
nlohmann::json linear_config(const std::string& architecture, const std::string& feature_map,
                             const nlohmann::json& options = nlohmann::json::object(),
                             const nlohmann::json& more = nlohmann::json::object());

class ModelDirectory {
 public:
  explicit ModelDirectory(const nlohmann::json& config);
  const std::string& path() const { return dir_.path(); }
  const nlohmann::json& config() const { return config_; }

  // Replaces config.json by another text, or model.safetensors by other bytes.
  void write_config(const nlohmann::json& config) const;
  void write_weights(const std::string& bytes) const;
  const std::string& weights() const { return weights_; }  // as they were at first

  // model.safetensors with a changed header, whose length fits.
  std::string with_header(const nlohmann::json& header) const;
  nlohmann::json header() const;
  // Where the tensor's data begin and end in the file.
  std::pair<size_t, size_t> data_of(const std::string& tensor) const;

 private:
  testing::TempDir dir_;
  nlohmann::json config_;
  std::string weights_;
};

// The message with which the directory is refused, "" if it opens and computes finite numbers.
std::string refusal(const std::string& model_dir);

}  // namespace rf::tests
