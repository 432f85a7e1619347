// Ranges of configuration values and relations between them.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "names.h"
#include "rf/io/error.h"
#include "rf/model/config.h"
#include "rf/model/weights.h"

namespace rf {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSize = int64_t{1} << 31;
constexpr int64_t kMaxLabels = 1 << 20;  // as are the names of the labels

void check_range(std::string_view where, std::string_view key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) fail(where, "{} must be in [{}, {}], got {}", key, low, high, value);
}

void check_probability(std::string_view where, std::string_view key, double value) {
  // The bound of core/include/rf/dropout.h.
  if (!(value >= 0.0 && value < 1 - 0x1p-17)) fail(where, "{} must be in [0, 1 - 2^-17), got {}", key, value);
}

void check_heads(const ModelConfig& config, std::string_view where) {
  const auto& [hidden, heads] = std::pair(config.hidden_size, config.num_attention_heads);
  if (hidden % heads != 0)
    fail(where, "hidden_size must be a multiple of num_attention_heads, got {} and {}", hidden, heads);
  if (has_position_table(config) && config.head_dim() % 2 != 0) {
    fail(where, "head size (hidden_size / num_attention_heads) must be even, got {} / {} = {}", hidden, heads,
         config.head_dim());
  }
}

// Keys of the RoFormer family that BERT's heads do not read.
void check_family(const ModelConfig& config, std::string_view where) {
  if (config.position_encodings.empty()) fail(where, "position_encoding must name an encoding, got none");
  if (config.attention.type != "softmax" && config.attention.type != "linear")
    fail(where, "attention must be softmax or linear, got {}", shown(json(config.attention.type)));
  if (config.attention.type == "softmax" && config.attention.options != "{}")
    fail(where, "attention of the type softmax must have no other key, got {}", config.attention.options);
  if (config.attention.type == "linear" && !config.layers.empty())
    fail(where, "local_attention must be null with linear attention, which has no windows, got windows");
  const bool is_plain = config.hidden_act != Activation::kGelu && config.hidden_act != Activation::kGeluTanh &&
                        config.hidden_act != Activation::kSilu;
  if (config.block.gated && is_plain && !config.is_foreign())
    fail(where, "hidden_act must be gelu, gelu_new or silu with \"block\": \"modernbert\", got {}",
         name_of_activation(config.hidden_act));
  if (config.family != Family::kBert || config.is_foreign()) return;
  if (config.embedding_size != config.hidden_size) {
    fail(where, "embedding_size must be hidden_size, {}, in the family bert, got {}", config.hidden_size,
         config.embedding_size);
  }
  if (config.summary_type != "last") {
    fail(where, "summary_type must be absent in the family bert, which has a pooler, got {}",
         shown(json(config.summary_type)));
  }
  if (!config.classifier_activation.empty()) {
    fail(where, "classifier_activation must be absent in the family bert, whose classifier has none, got {}",
         shown(json(config.classifier_activation)));
  }
}

void check_prefix_lm(const ModelConfig& config, std::string_view where) {
  if (!config.prefix_lm) return;
  if (!config.is_decoder) fail(where, "prefix_lm needs is_decoder to be true, got false");
  if (config.attention.type != "softmax")
    fail(where, "prefix_lm needs softmax attention, got {}", config.attention.type);
  if (config.add_cross_attention) fail(where, "prefix_lm needs add_cross_attention to be false, got true");
  if (config.type_vocab_size < 2)
    fail(where, "prefix_lm needs two token types, got type_vocab_size {}", config.type_vocab_size);
  const auto activation = config.kept.find("pooler_activation");
  if (activation != config.kept.end() && activation->second != "\"linear\"")
    fail(where, "pooler_activation must be \"linear\" with prefix_lm, got {}", activation->second);
}

void check_task(const ModelConfig& config, std::string_view where) {
  if (config.add_cross_attention && !config.is_decoder)
    fail(where, "add_cross_attention needs is_decoder to be true, got false");
  const std::set<std::string> problems = {"", "regression", "single_label_classification",
                                          "multi_label_classification"};
  if (!problems.contains(config.problem_type)) {
    fail(where,
         "problem_type must be null, regression, single_label_classification or multi_label_classification, got {}",
         shown(json(config.problem_type)));
  }
  if (config.problem_type == "single_label_classification" && config.num_labels == 1)
    fail(where, "single_label_classification needs at least 2 labels, got num_labels 1");
  if (config.summary_type != "last" && config.summary_type != "first")
    fail(where, "summary_type must be last or first, got {}", shown(json(config.summary_type)));
  const bool reads_last =
      config.is_foreign() && (config.classifier_pooling == "last" || config.classifier_pooling == "late");
  if (config.classifier_pooling != "cls" && config.classifier_pooling != "mean" && !reads_last)
    fail(where, "classifier_pooling must be cls or mean, got {}", shown(json(config.classifier_pooling)));
  if (!config.classifier_activation.empty() && activation_of_name(config.classifier_activation) != config.hidden_act) {
    fail(where, "classifier_activation must be null or hidden_act, the one that transformers uses, got {}",
         shown(json(config.classifier_activation)));
  }
  if (!config.id2label.empty() &&
      (static_cast<int64_t>(config.id2label.size()) != config.num_labels || config.id2label.begin()->first != 0 ||
       config.id2label.rbegin()->first != config.num_labels - 1)) {
    fail(where, "id2label must name the labels 0 to num_labels - 1, got {} names for {} labels", config.id2label.size(),
         config.num_labels);
  }
}

}  // namespace

void check_config(const ModelConfig& config, std::string_view where) {
  check_range(where, "vocab_size", config.vocab_size, 1, kMaxSize);
  check_range(where, "hidden_size", config.hidden_size, 1, kMaxSize);
  check_range(where, "embedding_size", config.embedding_size, 1, kMaxSize);
  check_range(where, "num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers);
  check_range(where, "num_attention_heads", config.num_attention_heads, 1, kMaxSize);
  check_range(where, "intermediate_size", config.intermediate_size, 1, kMaxSize);
  check_range(where, "max_position_embeddings", config.max_position_embeddings, 1, kMaxSize);
  check_range(where, "type_vocab_size", config.type_vocab_size, config.is_foreign() || config.block.pre_norm ? 0 : 1,
              kMaxSize);
  check_range(where, "pad_token_id", config.pad_token_id, 0, config.vocab_size - 1);
  check_range(where, "num_labels", config.num_labels, 1, kMaxLabels);
  check_probability(where, "hidden_dropout_prob", config.hidden_dropout_prob);
  check_probability(where, "attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  if (config.classifier_dropout) check_probability(where, "classifier_dropout", *config.classifier_dropout);
  if (!(config.layer_norm_eps > 0.0 && std::isfinite(config.layer_norm_eps)))
    fail(where, "layer_norm_eps must be above 0, got {}", config.layer_norm_eps);
  if (!(config.initializer_range >= 0.0 && std::isfinite(config.initializer_range)))
    fail(where, "initializer_range must be at least 0, got {}", config.initializer_range);
  if (!config.is_foreign()) check_heads(config, where);
  check_family(config, where);
  check_task(config, where);
  check_prefix_lm(config, where);
}

}  // namespace rf
