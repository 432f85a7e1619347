// Writing models (see the header).
#include "model_directory.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "rf/engine/model.h"
#include "rf/io/files.h"
#include "rf/io/safetensors.h"
#include "rf/model/config.h"
#include "rf/model/weights.h"

namespace rf::tests {

using nlohmann::json;

namespace {

constexpr size_t kLengthBytes = 8;

std::vector<float> values_of(const WeightSpec& spec, size_t count, std::mt19937& random) {
  if (spec.role == WeightRole::kTable) return position_table(spec.shape[0], spec.shape[1]);
  std::normal_distribution<float> normal(0, 0.3F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void write_random_weights(const json& config_json, const std::string& path) {
  const ModelConfig config = parse_config(config_json);
  const std::vector<WeightSpec> specs = weight_specs(config, config.head());
  std::mt19937 random(1);
  std::vector<std::vector<float>> values;
  for (const WeightSpec& spec : specs) {
    size_t count = 1;
    for (const int64_t extent : spec.shape) count *= static_cast<size_t>(extent);
    values.push_back(values_of(spec, count, random));
  }
  std::vector<io::TensorView> views;
  for (size_t i = 0; i < specs.size(); ++i)
    views.push_back({specs[i].name, io::DType::kF32, specs[i].shape, std::as_bytes(std::span(values[i]))});
  io::write_safetensors(path, views, {{"format", "pt"}});
}

// Not synced, because thousands are written.
void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

uint64_t header_length(const std::string& bytes) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  return length;
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

ModelDirectory::ModelDirectory(const json& config) : config_(config) {
  write_config(config);
  write_random_weights(config, dir_.file("model.safetensors"));
  weights_ = io::read_file(dir_.file("model.safetensors"));
}

void ModelDirectory::write_config(const json& config) const { write(dir_.file("config.json"), config.dump()); }

void ModelDirectory::write_weights(const std::string& bytes) const { write(dir_.file("model.safetensors"), bytes); }

std::string ModelDirectory::with_header(const json& header) const {
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), kLengthBytes);
  return bytes + text + weights_.substr(kLengthBytes + header_length(weights_));
}

json ModelDirectory::header() const { return json::parse(weights_.substr(kLengthBytes, header_length(weights_))); }

std::pair<size_t, size_t> ModelDirectory::data_of(const std::string& tensor) const {
  const size_t start = kLengthBytes + header_length(weights_);
  const json offsets = header()[tensor]["data_offsets"];
  return {start + offsets[0].get<size_t>(), start + offsets[1].get<size_t>()};
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
