// Families whose blocks are Llama's with other biases: Helium (Kyutai, 2025) and ERNIE 4.5 (Baidu, 2025), which rotate
// adjacent pairs, and Seed-OSS (ByteDance, 2025).
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily helium() {
  ModelFamily family = llama();
  family.model_type = "helium";
  family.gguf = "";
  family.classes = "Helium";
  family.eps = 1e-8;
  family.defaults = R"({"num_key_value_heads": 20, "eos_token_id": 2})";
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_biases(keys, config);
    config.block.output_bias = false;
  };
  return family;
}

ModelFamily ernie4_5() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "ernie4_5";
  family.classes = "Ernie4_5";
  family.eps = 1e-5;
  family.defaults = R"({"num_key_value_heads": 2, "tie_word_embeddings": true, "eos_token_id": 2})";
  family.keys = {"use_bias", "auto_map"};
  family.read = [](const Keys& keys, ModelConfig& config) { read_all_biases(keys, "use_bias", false, config); };
  return family;
}

ModelFamily seed_oss() {
  static const std::vector<ModuleName> kModules = joined(
      {{"encoder.layer.{}.output.LayerNorm", "layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"}},
      llama_modules());
  ModelFamily family = llama();
  family.model_type = family.gguf = "seed_oss";
  family.classes = "SeedOss";
  family.modules = kModules;
  family.defaults = R"({"num_key_value_heads": 8, "eos_token_id": 2})";
  family.keys.push_back("attention_out_bias");
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_biases(keys, config);
    config.block.qkv_bias = keys.boolean("attention_bias", true);
    config.block.output_bias = keys.boolean("attention_out_bias", false);
  };
  return family;
}

}  // namespace rf
