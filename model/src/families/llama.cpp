// Llama (Touvron et al. 2023, arXiv 2302.13971): RMS norms before each part of a layer, a gated feed-forward network,
// grouped keys.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf {

BlockSpec llama_block() {
  return {.norm = NormKind::kRms,
          .norm_bias = false,
          .pre_norm = true,
          .gated = true,
          .qkv_bias = false,
          .output_bias = false,
          .mlp_bias = false};
}

std::span<const ModuleName> llama_modules() {
  static constexpr ModuleName kModules[] = {
      {"embeddings.word_embeddings", "embed_tokens", "token_embd"},
      {"encoder.layer.{}.attention.output.LayerNorm", "layers.{}.input_layernorm", "blk.{}.attn_norm"},
      {"encoder.layer.{}.attention.self.query", "layers.{}.self_attn.q_proj", "blk.{}.attn_q"},
      {"encoder.layer.{}.attention.self.key", "layers.{}.self_attn.k_proj", "blk.{}.attn_k"},
      {"encoder.layer.{}.attention.self.value", "layers.{}.self_attn.v_proj", "blk.{}.attn_v"},
      {"encoder.layer.{}.attention.self.query_norm", "layers.{}.self_attn.q_norm", "blk.{}.attn_q_norm"},
      {"encoder.layer.{}.attention.self.key_norm", "layers.{}.self_attn.k_norm", "blk.{}.attn_k_norm"},
      {"encoder.layer.{}.attention.output.dense", "layers.{}.self_attn.o_proj", "blk.{}.attn_output"},
      {"encoder.layer.{}.output.LayerNorm", "layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"},
      {"encoder.layer.{}.intermediate.gate", "layers.{}.mlp.gate_proj", "blk.{}.ffn_gate"},
      {"encoder.layer.{}.intermediate.dense", "layers.{}.mlp.up_proj", "blk.{}.ffn_up"},
      {"encoder.layer.{}.output.dense", "layers.{}.mlp.down_proj", "blk.{}.ffn_down"},
      {"encoder.final_norm", "norm", "output_norm"},
      {"lm_head", "lm_head", "output"},
      {"classifier", "score", ""},
  };
  return kModules;
}

void read_attention_bias(const Keys& keys, ModelConfig& config, bool fallback) {
  config.block.qkv_bias = config.block.output_bias = keys.boolean("attention_bias", fallback);
}

void read_biases(const Keys& keys, ModelConfig& config) {
  read_attention_bias(keys, config);
  config.block.mlp_bias = keys.boolean("mlp_bias", false);
}

void read_all_biases(const Keys& keys, const char* key, bool fallback, ModelConfig& config) {
  config.block.qkv_bias = config.block.output_bias = config.block.mlp_bias = keys.boolean(key, fallback);
}

ModelFamily llama() {
  return {.model_type = "llama",
          .gguf = "llama",
          .classes = "Llama",
          .prefix = "model.",
          .modules = llama_modules(),
          .block = llama_block(),
          .layers_of_heads = kDecoderHeads,
          .any_activation = true,
          .defaults = R"({"eos_token_id": 2})",
          .keys = {"attention_bias", "mlp_bias"},
          .read = read_biases};
}

// Nvidia's embedding models, which ship their own code: Llama without a causal mask, and mean pooling.
ModelFamily llama_bidirec() {
  ModelFamily family = llama();
  family.model_type = "llama_bidirec";
  family.gguf = "";
  family.classes = "LlamaBidirectional";
  family.keys = {"attention_bias", "mlp_bias", "auto_map", "pooling"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_biases(keys, config);
    config.is_decoder = false;
    const std::string pooling = keys.text("pooling");
    if (!pooling.empty() && pooling != "avg") fail(keys.file(), "pooling must be avg, got {}", io::printable(pooling));
  };
  return family;
}

}  // namespace rf
