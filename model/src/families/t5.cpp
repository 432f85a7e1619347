// The encoder of T5 (Raffel et al. 2020, arXiv 1910.10683), as in sentence-t5: RMS norms before each part of a layer,
// scores that are not scaled, and a bias by bucket of the distance, whose weights are in layer 0. Version 1.1 has gated
// feed-forward networks.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf {

namespace {

constexpr ModuleName kT5Modules[] = {
    {"embeddings.word_embeddings", "shared", ""},
    {"encoder.relative_attention_bias", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", "encoder.block.{}.layer.0.layer_norm", ""},
    {"encoder.layer.{}.attention.self.query", "encoder.block.{}.layer.0.SelfAttention.q", ""},
    {"encoder.layer.{}.attention.self.key", "encoder.block.{}.layer.0.SelfAttention.k", ""},
    {"encoder.layer.{}.attention.self.value", "encoder.block.{}.layer.0.SelfAttention.v", ""},
    {"encoder.layer.{}.attention.output.dense", "encoder.block.{}.layer.0.SelfAttention.o", ""},
    {"encoder.layer.{}.output.LayerNorm", "encoder.block.{}.layer.1.layer_norm", ""},
    {"encoder.layer.{}.intermediate.gate", "encoder.block.{}.layer.1.DenseReluDense.wi_0", ""},
    {"encoder.layer.{}.intermediate.dense", "encoder.block.{}.layer.1.DenseReluDense.wi_1", ""},
    {"encoder.layer.{}.intermediate.dense", "encoder.block.{}.layer.1.DenseReluDense.wi", ""},
    {"encoder.layer.{}.output.dense", "encoder.block.{}.layer.1.DenseReluDense.wo", ""},
    {"encoder.final_norm", "encoder.final_layer_norm", ""},
};

// "relu" or "gated-gelu", whose GELU is the one by tanh; the two keys that transformers derives must agree.
void read_feed_forward(const Keys& keys, ModelConfig& config) {
  constexpr std::string_view kGated = "gated-";
  const std::string given = keys.text("feed_forward_proj");
  config.block.gated = given.starts_with(kGated);
  const std::string own = config.block.gated ? given.substr(kGated.size()) : given;
  const std::string name = given == "gated-gelu" ? "gelu_new" : own, derived = keys.text("dense_act_fn");
  const std::optional<Activation> activation = activation_of_name(name);
  if (!activation) {
    fail(keys.file(), "feed_forward_proj must be {}, or gated- before one, got {}", kActivationNames,
         io::printable(given));
  }
  if ((!derived.empty() && activation_of_name(derived) != activation) ||
      keys.boolean("is_gated_act", config.block.gated) != config.block.gated) {
    fail(keys.file(), "dense_act_fn and is_gated_act must be those of feed_forward_proj, {}, got {} and {}",
         io::printable(given), io::printable(derived), shown(keys.json().value("is_gated_act", nlohmann::json())));
  }
  config.hidden_act = *activation;
}

void read_t5(const Keys& keys, ModelConfig& config) {
  config.embedding_norm = false;
  config.block.attention_scale = 1;
  config.head_size = keys.integer({"head_dim"}, 1, kMaxHeadSize);
  for (const auto& [key, value] : {std::pair("relative_attention_num_buckets", PositionSpec::kBucketsRead),
                                   std::pair("relative_attention_max_distance", int64_t{128})}) {
    if (const int64_t found = keys.integer({key}, 1, kMaxWidth); found != value)
      fail(keys.file(), "{} must be {}, got {}", key, value, found);
  }
  config.positions.rows = PositionSpec::kBucketsRead;
  read_feed_forward(keys, config);
}

}  // namespace

ModelFamily t5() {
  BlockSpec block = llama_block();
  block.gated = false;
  return {.model_type = "t5",
          .classes = "T5Encoder",
          .prefix = "",
          .modules = kT5Modules,
          .heads = Family::kBert,
          .block = block,
          .layers_of_heads = {.bare_pooler = false},
          .rotates = false,
          .positions = {.relative = PositionSpec::Relative::kBuckets},
          .activation = Activation::kRelu,
          .any_activation = true,
          .activation_key = "dense_act_fn",
          .eps_key = "layer_norm_epsilon",
          .defaults = R"({"type_vocab_size": 0, "pad_token_id": 0, "max_position_embeddings": 1048576, "head_dim": 64,
            "feed_forward_proj": "relu", "relative_attention_num_buckets": 32,
            "relative_attention_max_distance": 128})",
          .keys = {"feed_forward_proj", "is_gated_act", "is_encoder_decoder", "n_positions", "num_decoder_layers",
                   "scale_decoder_outputs", "relative_attention_num_buckets", "relative_attention_max_distance"},
          .renamed_keys = {{"d_model", "hidden_size"},
                           {"d_kv", "head_dim"},
                           {"d_ff", "intermediate_size"},
                           {"num_layers", "num_hidden_layers"},
                           {"num_heads", "num_attention_heads"},
                           {"dropout_rate", "hidden_dropout_prob"}},
          .read = read_t5};
}

// The multilingual T5 (Xue et al. 2021, arXiv 2010.11934): version 1.1.
ModelFamily mt5() {
  ModelFamily family = t5();
  family.model_type = "mt5";
  family.classes = "MT5Encoder";
  family.defaults = R"({"type_vocab_size": 0, "pad_token_id": 0, "max_position_embeddings": 1048576, "head_dim": 64,
    "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128})";
  return family;
}

}  // namespace rf
