// Falcon (Almazrouei et al. 2023, arXiv 2311.16867): layer norms with biases, and one matrix of queries, keys and
// values in three orders: one key for all heads (multi_query), one for each head, or one for each group
// (new_decoder_architecture). Both parts read the layer's input by one norm or two, or follow each other
// (parallel_attn false). Falcon-RW has ALiBi in place of the rotation, and so does BLOOM (arXiv 2211.05100), which
// norms its embeddings.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kFalconModules[] = {
    {"embeddings.word_embeddings", "word_embeddings", "token_embd"},
    {"encoder.layer.{}.attention.output.LayerNorm", "h.{}.input_layernorm", "blk.{}.attn_norm"},
    {"encoder.layer.{}.attention.output.LayerNorm", "h.{}.ln_attn", "blk.{}.attn_norm"},
    {"encoder.layer.{}.attention.self.query_key_value", "h.{}.self_attention.query_key_value", "blk.{}.attn_qkv"},
    {"encoder.layer.{}.attention.output.dense", "h.{}.self_attention.dense", "blk.{}.attn_output"},
    {"encoder.layer.{}.output.LayerNorm", "h.{}.post_attention_layernorm", ""},
    {"encoder.layer.{}.output.LayerNorm", "h.{}.ln_mlp", ""},
    {"encoder.layer.{}.intermediate.dense", "h.{}.mlp.dense_h_to_4h", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "h.{}.mlp.dense_4h_to_h", "blk.{}.ffn_down"},
    {"encoder.final_norm", "ln_f", "output_norm"},
    {"lm_head", "lm_head", "output"},
    {"classifier", "score", ""},
};

bool is_on(const nlohmann::json& object, const char* key, bool fallback) {
  const nlohmann::json* const value = given(object, key);
  return value == nullptr ? fallback : *value == true;
}

void rewrite_falcon(nlohmann::json& object, const std::string&) {
  put_inner_width(object);
  const bool grouped = is_on(object, "new_decoder_architecture", false);
  const nlohmann::json heads = object.value("num_attention_heads", nlohmann::json());
  const nlohmann::json groups = given(object, "num_kv_heads") == nullptr ? heads : object["num_kv_heads"];
  object["num_key_value_heads"] = grouped ? groups : is_on(object, "multi_query", true) ? nlohmann::json(1) : heads;
}

void read_falcon(const Keys& keys, ModelConfig& config) {
  BlockSpec& block = config.block;
  const bool grouped = keys.boolean("new_decoder_architecture", false);
  const int64_t norms = keys.integer({"num_ln_in_parallel_attn"}, 1, 2);
  block.parallel = keys.boolean("parallel_attn", true);
  if (grouped && !block.parallel)
    fail(keys.file(), "parallel_attn must be true with new_decoder_architecture, got false");
  block.shared_norm = block.parallel && !(grouped && norms != 1);
  const bool is_one_key = keys.boolean("multi_query", true) && !grouped;
  block.fused_qkv = is_one_key ? BlockSpec::Fused::kParts : BlockSpec::Fused::kHeads;
  read_all_biases(keys, "bias", false, config);
  if (!keys.boolean("alibi", false)) return;
  set_linear_positions(keys, config);
  config.positions.falcon_slopes = true;
}

}  // namespace

ModelFamily falcon() {
  return {.model_type = "falcon",
          .gguf = "falcon",
          .classes = "Falcon",
          .prefix = "transformer.",
          .modules = kFalconModules,
          .block = {.pre_norm = true, .fused_qkv = BlockSpec::Fused::kParts},
          .layers_of_heads = kDecoderHeads,
          .activation = Activation::kGelu,
          .any_activation = true,
          .eps_key = "layer_norm_epsilon",
          .eps = 1e-5,
          .defaults = R"({"tie_word_embeddings": true, "eos_token_id": 11, "max_position_embeddings": 2048})",
          .keys = {"num_key_value_heads", "num_kv_heads", "new_decoder_architecture", "num_ln_in_parallel_attn",
                   "parallel_attn", "multi_query", "bias", "auto_map", "alibi"},
          .renamed_keys = {{"n_embed", "hidden_size"},
                           {"ffn_hidden_size", "intermediate_size"},
                           {"activation", "hidden_act"}},
          .off_keys = {"apply_residual_connection_post_layernorm"},
          .rewrite = rewrite_falcon,
          .read = read_falcon};
}

ModelFamily bloom() {
  static const std::vector<ModuleName> kModules =
      joined({{"embeddings.LayerNorm", "word_embeddings_layernorm", "token_embd_norm"},
              {"encoder.layer.{}.output.LayerNorm", "h.{}.post_attention_layernorm", "blk.{}.ffn_norm"}},
             kFalconModules);
  ModelFamily family = falcon();
  family.model_type = family.gguf = "bloom";
  family.classes = "Bloom";
  family.modules = kModules;
  family.block = {.pre_norm = true, .fused_qkv = BlockSpec::Fused::kHeads};
  family.rotates = false;
  family.activation = Activation::kGeluTanh;
  family.any_activation = false;
  family.defaults = R"({"tie_word_embeddings": true, "eos_token_id": 2, "max_position_embeddings": 2048})";
  family.keys = {"n_inner",       "offset_alibi",     "masked_softmax_fusion", "bias_dropout_fusion",
                 "skip_bias_add", "skip_bias_add_qkv"};
  family.renamed_keys = {{"n_embed", "hidden_size"},
                         {"n_layer", "num_hidden_layers"},
                         {"n_head", "num_attention_heads"},
                         {"seq_length", "max_position_embeddings"}};
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    object.erase("intermediate_size");  // which the class ignores
    put_inner_width(object);
    const nlohmann::json* const parts = given(object, "pretraining_tp");
    if (Keys(object, where, "").boolean("slow_but_exact", false) && parts != nullptr && *parts > 1) {
      fail(where, "pretraining_tp must be absent or 1 with slow_but_exact, which then leaves out biases, got {}",
           shown(*parts));
    }
  };
  family.read = [](const Keys& keys, ModelConfig& config) {
    set_linear_positions(keys, config);
    config.embedding_norm = true;
  };
  return family;
}

}  // namespace rf
