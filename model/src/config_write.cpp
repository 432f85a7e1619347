// Writes a ModelConfig to config.json, with the keys and the order (by name) of transformers.
#include <nlohmann/json.hpp>

#include "config_keys.h"
#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/config.h"

namespace rf {
namespace {

using nlohmann::json;

void add_labels(const ModelConfig& config, json& object) {
  // transformers omits the default, two labels called LABEL_0 and LABEL_1.
  if (config.id2label.empty() && config.num_labels == ModelConfig{}.num_labels) return;
  json id2label = json::object(), label2id = json::object();
  for (int64_t id = 0; id < config.num_labels; ++id) {
    const std::string label = config.id2label.empty() ? fmt::format("LABEL_{}", id) : config.id2label.at(id);
    id2label[std::to_string(id)] = label;
    label2id[label] = id;
  }
  object["id2label"] = std::move(id2label);
  object["label2id"] = std::move(label2id);
}

}  // namespace

json to_json(const ModelConfig& config) {
  check_config(config, "config");
  json object = {
      {"model_type", model_type(config)},
      {"dtype", "float32"},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"num_hidden_layers", config.num_hidden_layers},
      {"num_attention_heads", config.num_attention_heads},
      {"intermediate_size", config.intermediate_size},
      {"hidden_act", name_of_activation(config.hidden_act)},
      {"hidden_dropout_prob", config.hidden_dropout_prob},
      {"attention_probs_dropout_prob", config.attention_probs_dropout_prob},
      {"max_position_embeddings", config.max_position_embeddings},
      {"type_vocab_size", config.type_vocab_size},
      {"initializer_range", config.initializer_range},
      {"layer_norm_eps", config.layer_norm_eps},
      {"pad_token_id", config.pad_token_id},
      {"is_decoder", config.is_decoder},
      {"add_cross_attention", config.add_cross_attention},
      {"tie_word_embeddings", config.tie_word_embeddings},
  };
  if (config.family != Family::kBert) object["embedding_size"] = config.embedding_size;
  if (config.family != Family::kBert || config.rotary_value) object["rotary_value"] = config.rotary_value;
  if (config.family == Family::kRoFormerV2) {
    object["use_bias"] = config.use_bias();
    object["norm_type"] = norm_name(config.norm_kind());
  }
  if (object["model_type"] == "rf_encoder") {
    object["family"] = family_name(config.family);
    object.update(position_to_json(config));
  }
  if (config.prefix_lm) object["prefix_lm"] = true;
  add_labels(config, object);
  if (!config.problem_type.empty()) object["problem_type"] = config.problem_type;
  if (config.summary_type != ModelConfig{}.summary_type) object["summary_type"] = config.summary_type;
  if (config.classifier_pooling != ModelConfig{}.classifier_pooling) {
    object["classifier_pooling"] = config.classifier_pooling;
  }
  if (!config.classifier_activation.empty()) object["classifier_activation"] = config.classifier_activation;
  if (config.classifier_dropout) object["classifier_dropout"] = *config.classifier_dropout;
  if (!config.architectures.empty()) object["architectures"] = config.architectures;
  for (const auto& [key, text] : config.kept) {
    if (harmless_key(key) != Harmless::kKept) fail("config", "kept keys must be harmless ones, got {}", key);
    object[key] = io::parse_json(text, "config: " + key);
  }
  return object;
}

void save_config(const ModelConfig& config, const std::string& model_dir) {
  constexpr int kIndent = 2;
  io::write_file(model_dir + "/config.json", to_json(config).dump(kIndent) + "\n");
}

}  // namespace rf
