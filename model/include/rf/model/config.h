// config.json of a RoFormer as transformers writes it (spec R-HF-02), read strictly: a key that could change the result
// and that this program does not honour is an error; keys that cannot change it are listed and kept for writing back.
// Does not read RoFormer-V2 (no biases, RMS norm) or quantized models: they are refused by name.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rf {

// Heads of spec R-HF-09..13, named by their transformers class.
enum class Head {
  kNone,                    // RoFormerModel
  kMaskedLm,                // RoFormerForMaskedLM
  kCausalLm,                // RoFormerForCausalLM
  kSequenceClassification,  // RoFormerForSequenceClassification
  kMultipleChoice,          // RoFormerForMultipleChoice
  kTokenClassification,     // RoFormerForTokenClassification
  kQuestionAnswering,       // RoFormerForQuestionAnswering
};

// "RoFormerForMaskedLM" <-> Head::kMaskedLm. Throws Error on an unknown class name.
Head head_of_architecture(const std::string& architecture);
std::string architecture_of_head(Head head);

enum class Activation { kGelu, kGeluTanh, kRelu, kSilu, kTanh };  // kGelu is the exact, erf form (R-HF-06)

// Defaults are those of transformers' RoFormerConfig.
struct ModelConfig {
  int64_t vocab_size = 50000;
  int64_t embedding_size = 768;  // "embedding_size": null means hidden_size
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  Activation hidden_act = Activation::kGelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 1536;  // the length of the stored table, no limit on inputs
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 0;  // null is refused: padding needs a token
  bool rotary_value = false;
  bool is_decoder = false;
  bool add_cross_attention = false;
  bool tie_word_embeddings = true;
  int64_t num_labels = 2;
  std::map<int64_t, std::string> id2label;  // empty: LABEL_0, LABEL_1, ...
  std::string problem_type;                 // "", regression, single_label_classification, multi_label_classification
  std::string summary_type = "last";        // multiple choice: last or first (INC-23)
  std::string classifier_activation;        // "" (hidden_act), or hidden_act's name: transformers has no other (INC-22)
  std::optional<double> classifier_dropout;  // absent: hidden_dropout_prob
  std::vector<std::string> architectures;
  std::map<std::string, std::string> kept;  // harmless keys as read (key -> JSON text), written back by to_json

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  // Head named by `architectures`; kNone when the list is empty.
  Head head() const;
  bool operator==(const ModelConfig&) const = default;
};

// Throws Error naming the key and its value: unknown key, wrong type, hidden_size not divisible by heads, odd head
// size, sizes out of range, model_type other than "roformer". Missing keys take the default; a missing embedding_size
// is hidden_size. id2label that only says LABEL_0, LABEL_1, ... is read as empty. The dtype keys are dropped:
// parameters are read by their file's dtypes, and written as float32.
ModelConfig parse_config(const nlohmann::json& json);
ModelConfig load_config(const std::string& model_dir);

// Keys as transformers writes them; parse_config(to_json(c)) == c. Throws Error where parse_config would refuse the
// result.
nlohmann::json to_json(const ModelConfig& config);
void save_config(const ModelConfig& config, const std::string& model_dir);

}  // namespace rf
