// Writing models (see the header).
#include "model_directory.h"

#include <cmath>
#include <fstream>
#include <random>

#include "rf/engine/model.h"
#include "rf/io/safetensors.h"
#include "rf/model/config.h"
#include "rf/model/weights.h"

namespace rf::tests {

using nlohmann::json;

namespace {

std::vector<ModelTensor> random_tensors(const json& config_json) {
  const ModelConfig config = parse_config(config_json);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.3F);
  std::vector<ModelTensor> tensors;
  const Head head = config.head();
  for (const WeightSpec& spec : weight_specs(config, head)) {
    size_t count = 1;
    for (const int64_t extent : spec.shape) count *= static_cast<size_t>(extent);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    if (spec.role == WeightRole::kTable) values = position_table(spec.shape[0], spec.shape[1]);
    tensors.push_back({file_name(config, head, spec.name), spec.shape, std::move(values)});
  }
  return tensors;
}

}  // namespace

json small_config(const std::string& model_type, const std::string& architecture, const json& more) {
  json config = {{"model_type", model_type}, {"architectures", {architecture}}, {"vocab_size", 31},
                 {"hidden_size", 24},        {"num_hidden_layers", 2},          {"num_attention_heads", 2},
                 {"intermediate_size", 37},  {"max_position_embeddings", 16},   {"type_vocab_size", 2},
                 {"layer_norm_eps", 1e-12}};
  config.update(more);
  return config;
}

json linear_config(const std::string& architecture, const std::string& feature_map, const json& options,
                   const json& more) {
  json attention = {{"type", "linear"}, {"feature_map", feature_map}};
  attention.update(options);
  json config = small_config("rf_encoder", architecture, {{"position_encoding", "rope"}, {"attention", attention}});
  config.update(more);
  return config;
}

ModelDirectory::ModelDirectory(const json& config) : config_(config), tensors_(random_tensors(config)) {
  write_config(config);
  write_weights(tensors_);
}

void ModelDirectory::write_config(const json& config) const {
  std::ofstream(dir_ / "config.json", std::ios::binary) << config.dump();  // not synced: hundreds are written
}

void ModelDirectory::write_weights(const std::vector<ModelTensor>& tensors) const {
  std::vector<io::TensorView> views;
  for (const auto& [name, shape, values] : tensors)
    views.push_back({name, io::DType::kF32, shape, std::as_bytes(std::span(values))});
  io::write_safetensors(dir_ / "model.safetensors", views, {{"format", "pt"}});
}

std::string refusal(const std::string& model_dir) {
  try {
    const engine::Model model(model_dir);
    const std::vector<int32_t> ids = {0, 0, 0};
    const std::vector<int64_t> offsets = {0, 1, 3};
    std::vector<float> hidden(ids.size() * static_cast<size_t>(model.info().hidden_size));
    model.hidden({.ids = ids, .offsets = offsets}, hidden.data());
    for (const float value : hidden) EXPECT_TRUE(std::isfinite(value));
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

}  // namespace rf::tests
