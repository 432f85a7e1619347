// DeBERTa, v2 and v3 (He et al. 2020, arXiv 2006.03654; 2021, arXiv 2111.09543): BERT's layers with rows by distance
// for queries and keys, no pooler in the encoder, and a dense layer before classification. Large models of v2 have a
// convolution of the embeddings next to the first layer.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr size_t kOfVersion1 = 3;  // the first rows, which version 2 does not use
constexpr ModuleName kDebertaModules[] = {
    {"encoder.layer.{}.attention.self.query_key_value", "encoder.layer.{}.attention.self.in_proj", ""},
    {"encoder.layer.{}.attention.self.pos_key_proj", "encoder.layer.{}.attention.self.pos_proj", ""},
    {"encoder.layer.{}.attention.self.pos_query_proj", "encoder.layer.{}.attention.self.pos_q_proj", ""},
    {"encoder.layer.{}.attention.self.query", "encoder.layer.{}.attention.self.query_proj", ""},
    {"encoder.layer.{}.attention.self.key", "encoder.layer.{}.attention.self.key_proj", ""},
    {"encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.self.value_proj", ""},
    {"embeddings_project", "embeddings.embed_proj", ""},
    {"classifier.dense", "pooler.dense", ""},
    {"classifier.out_proj", "classifier", ""},
    {"cls.predictions.transform.dense", "cls.predictions.transform.dense", ""},
    {"cls.predictions.transform.LayerNorm", "cls.predictions.transform.LayerNorm", ""},
    {"cls.predictions", "cls.predictions", ""},
    {"cls.predictions.transform.dense", "lm_predictions.lm_head.dense", ""},  // legacy: false
    {"cls.predictions.transform.LayerNorm", "lm_predictions.lm_head.LayerNorm", ""},
    {"cls.predictions", "lm_predictions.lm_head", ""},
};

// The words of a key: a list, or text between bars, in any case and with spaces.
std::vector<std::string> words(const Keys& keys, const char* key) {
  const nlohmann::json* const value = given(keys.json(), key);
  std::vector<std::string> all;
  if (value == nullptr) return all;
  if (value->is_array()) {
    for (const nlohmann::json& word : *value) all.push_back(word.is_string() ? word.get<std::string>() : shown(word));
    return all;
  }
  std::string word;
  for (const char c : keys.text(key) + "|") {
    if (c == '|')
      all.push_back(std::exchange(word, {}));
    else if (c != ' ')
      word += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return all;
}

bool has_word(const Keys& keys, const char* key, std::string_view word) {
  const std::vector<std::string> all = words(keys, key);
  return std::ranges::find(all, word) != all.end();
}

// A number whose absence is -1 or null.
int64_t positive(const Keys& keys, const char* key) {
  const nlohmann::json* const value = given(keys.json(), key);
  if (value == nullptr || (value->is_number_integer() && *value <= 0)) return 0;
  return keys.integer({key}, 1, int64_t{1} << 14);
}

// Another term still counts in the scale of version 1, so it is refused.
void read_distances(const Keys& keys, ModelConfig& config) {
  PositionSpec& positions = config.positions;
  positions.learned = keys.boolean("position_biased_input", true);
  positions.content_to_position = has_word(keys, "pos_att_type", "c2p");
  positions.position_to_content = has_word(keys, "pos_att_type", "p2c");
  const int parts = 1 + (positions.content_to_position ? 1 : 0) + (positions.position_to_content ? 1 : 0);
  if (std::ssize(words(keys, "pos_att_type")) != parts - 1) {
    fail(keys.file(), "pos_att_type must be of c2p and p2c, each once, got {}",
         shown(*given(keys.json(), "pos_att_type")));
  }
  if (parts > 1) config.block.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim()) * parts);
  config.summary_type = "first";
  config.heads.later_names = !keys.boolean("legacy", true);
  if (config.heads.later_names) config.tie_word_embeddings = true;  // whose head reads the word embeddings
  config.heads.activation = activation_in(keys, "pooler_hidden_act", Activation::kGelu);
  const int64_t pooled = positive(keys, "pooler_hidden_size");
  if (pooled != 0 && pooled != config.hidden_size)
    fail(keys.file(), "pooler_hidden_size must be hidden_size, {}, got {}", config.hidden_size, pooled);
  if (config.embedding_size == 0) config.embedding_size = config.hidden_size;
  config.block.embedding_norm_last = config.embedding_size != config.hidden_size;
  if (config.block.embedding_norm_last && config.heads.later_names) {
    fail(keys.file(), "embedding_size must be hidden_size, {}, where legacy is false, got {}", config.hidden_size,
         config.embedding_size);
  }
  if (!keys.boolean("relative_attention", false)) return;
  positions.relative = PositionSpec::Relative::kDisentangled;
  positions.max_distance = positive(keys, "max_relative_positions");
  if (positions.max_distance == 0) positions.max_distance = positive(keys, "max_position_embeddings");
  positions.rows = 2 * positions.max_distance;
}

void read_version_1(const Keys& keys, ModelConfig& config) {
  read_distances(keys, config);
  if (keys.boolean("talking_head", false))
    fail(keys.file(), "talking_head must be false, since heads are not mixed, got true");
}

// The class adds it to the result of the first layer.
void read_convolution(const Keys& keys, ModelConfig& config) {
  BlockSpec& block = config.block;
  constexpr int64_t kMostTaps = 127;
  block.conv_kernel = positive(keys, "conv_kernel_size");
  if (block.conv_kernel == 0) return;
  if (block.conv_kernel % 2 == 0 || block.conv_kernel > kMostTaps)
    fail(keys.file(), "conv_kernel_size must be odd and at most {}, got {}", kMostTaps, block.conv_kernel);
  block.conv_act = activation_in(keys, "conv_act", Activation::kTanh);
  block.conv_groups = std::max<int64_t>(1, keys.integer({"conv_groups"}, 1, config.hidden_size));
  if (config.hidden_size % block.conv_groups != 0) {
    fail(keys.file(), "conv_groups must divide hidden_size, {}, got {}", config.hidden_size, block.conv_groups);
  }
}

void read_version_2(const Keys& keys, ModelConfig& config) {
  read_distances(keys, config);
  PositionSpec& positions = config.positions;
  read_convolution(keys, config);
  positions.relative_norm = has_word(keys, "norm_rel_ebd", "layer_norm");
  positions.shared_projections = keys.boolean("share_att_key", false);
  positions.buckets = positive(keys, "position_buckets");
  if (positions.buckets == 0 || positions.relative == PositionSpec::Relative::kNone) return;
  if (positions.buckets < 4 || positions.buckets % 2 != 0)
    fail(keys.file(), "position_buckets must be even and at least 4, got {}", positions.buckets);
  if (positions.max_distance <= positions.buckets / 2 + 1) {
    fail(keys.file(), "max_relative_positions must be more than {}, half of position_buckets and 1, got {}",
         positions.buckets / 2 + 1, positions.max_distance);
  }
  positions.rows = 2 * positions.buckets;
}

}  // namespace

ModelFamily deberta_v2();

// Version 1 joins queries, keys and values head by head; keys of tokens and of distances lack a bias.
ModelFamily deberta() {
  ModelFamily family = deberta_v2();
  family.model_type = "deberta";
  family.classes = "Deberta";
  family.modules = kDebertaModules;
  family.classless = {Head::kMultipleChoice};
  family.block.qkv_bias = false;
  family.block.query_value_bias = true;
  family.block.fused_qkv = BlockSpec::Fused::kHeads;
  family.keys = {"relative_attention", "max_relative_positions", "pos_att_type", "position_biased_input", "legacy",
                 "pooler_hidden_act",  "pooler_hidden_size",     "talking_head", "embedding_size"};
  family.read = read_version_1;
  return family;
}

ModelFamily deberta_v2() {
  ModelFamily family =
      like_bert("deberta-v2", "DebertaV2", "deberta.", std::span(kDebertaModules).subspan(kOfVersion1));
  family.layers_of_heads = {.sequence = HeadSpec::Before::kDense,
                            .choice = HeadSpec::Before::kDense,
                            .bare_pooler = false,
                            .drops = HeadSpec::Drops::kLast};
  family.eps = 1e-7;
  family.defaults = R"({"type_vocab_size": 0, "pad_token_id": 0, "max_position_embeddings": 512,
                        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})";
  family.keys = {"relative_attention", "max_relative_positions", "position_buckets",      "pos_att_type",
                 "share_att_key",      "norm_rel_ebd",           "position_biased_input", "legacy",
                 "pooler_hidden_act",  "pooler_hidden_size",     "conv_kernel_size",      "conv_act",
                 "conv_groups",        "embedding_size"};
  family.read = read_version_2;
  return family;
}

}  // namespace rf
