// MPT (MosaicML, 2023): layer norms without biases, one matrix of queries, keys and values, GELU, ALiBi.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kMptModules[] = {
    {"embeddings.word_embeddings", "wte", "token_embd"},
    {"encoder.layer.{}.attention.output.LayerNorm", "blocks.{}.norm_1", "blk.{}.attn_norm"},
    {"encoder.layer.{}.attention.self.query_key_value", "blocks.{}.attn.Wqkv", "blk.{}.attn_qkv"},
    {"encoder.layer.{}.attention.output.dense", "blocks.{}.attn.out_proj", "blk.{}.attn_output"},
    {"encoder.layer.{}.output.LayerNorm", "blocks.{}.norm_2", "blk.{}.ffn_norm"},
    {"encoder.layer.{}.intermediate.dense", "blocks.{}.ffn.up_proj", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "blocks.{}.ffn.down_proj", "blk.{}.ffn_down"},
    {"encoder.final_norm", "norm_f", "output_norm"},
    {"lm_head", "lm_head", "output"},
    {"classifier", "score", ""},
};

// Keys that the class has, and their only values that it computes as its authors do.
void rewrite_mpt(nlohmann::json& object, const std::string& where) {
  object.erase("intermediate_size");  // which the class ignores
  put_inner_width(object);
  if (const nlohmann::json* const length = given(object, "max_seq_len"); length != nullptr)
    object["max_position_embeddings"] = *length;
  const nlohmann::json* const given_attention = given(object, "attn_config");
  const nlohmann::json attention = given_attention == nullptr ? nlohmann::json::object() : *given_attention;
  if (!attention.is_object()) fail(where, "attn_config must be an object, got {}", shown(attention));
  for (const auto& [key, only] : {std::pair("alibi", nlohmann::json(true)),
                                  {"alibi_bias_max", 8},
                                  {"attn_type", "multihead_attention"},
                                  {"clip_qkv", nullptr},
                                  {"prefix_lm", false},
                                  {"qk_gn", false},
                                  {"qk_ln", false},
                                  {"rope", false},
                                  {"sliding_window_size", -1},
                                  {"softmax_scale", nullptr}}) {
    const nlohmann::json value = attention.value(key, only);
    if (value != only) fail(where, "attn_config.{} must be absent or {}, got {}", key, only.dump(), shown(value));
  }
  for (const auto& [key, only] : {std::pair("expansion_ratio", nlohmann::json(4)),
                                  {"no_bias", true},
                                  {"logit_scale", nullptr},
                                  {"norm_type", "low_precision_layernorm"},
                                  {"embedding_fraction", 1.0}}) {
    const nlohmann::json value = object.value(key, only);
    if (value != only) fail(where, "{} must be absent or {}, got {}", key, only.dump(), shown(value));
  }
}

}  // namespace

ModelFamily mpt() {
  return {.model_type = "mpt",
          .gguf = "mpt",
          .classes = "Mpt",
          .prefix = "transformer.",
          .modules = kMptModules,
          .block = {.norm_bias = false,
                    .pre_norm = true,
                    .qkv_bias = false,
                    .output_bias = false,
                    .mlp_bias = false,
                    .fused_qkv = BlockSpec::Fused::kParts},
          .layers_of_heads = kDecoderHeads,
          .rotates = false,
          .activation = Activation::kGelu,
          .eps_key = "layer_norm_epsilon",
          .eps = 1e-5,
          .defaults = R"({"tie_word_embeddings": true, "max_position_embeddings": 2048})",
          .keys = {"attn_config", "expansion_ratio", "no_bias", "logit_scale", "norm_type", "embedding_fraction",
                   "learned_pos_emb", "max_seq_len", "auto_map"},
          .renamed_keys = {{"d_model", "hidden_size"},
                           {"n_layers", "num_hidden_layers"},
                           {"n_heads", "num_attention_heads"}},
          .rewrite = rewrite_mpt,
          .read = set_linear_positions};
}

}  // namespace rf
