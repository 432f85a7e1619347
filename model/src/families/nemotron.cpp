// Feed-forward networks of the square of ReLU (So et al. 2021, arXiv 2109.08668) without gates: Nemotron 4 (arXiv
// 2402.16819) with layer norms of 1 + weight and partial rotation, Arcee (2025) with Llama's norms, Jais 2 (2025) with
// layer norms, and Persimmon (Adept, 2023) with layer norms, also of queries and keys.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily arcee() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "arcee";
  family.classes = "Arcee";
  family.block.gated = false;
  family.activation = Activation::kSquaredRelu;
  family.eps = 1e-5;
  family.defaults = R"({"eos_token_id": 128001})";
  return family;
}

ModelFamily nemotron() {
  ModelFamily family = arcee();
  family.model_type = family.gguf = "nemotron";
  family.classes = "Nemotron";
  family.block.norm = NormKind::kLayer;
  family.block.norm_bias = family.block.norm_plus_one = true;
  family.eps_key = "norm_eps";
  family.defaults = R"({"eos_token_id": 3})";
  return family;
}

ModelFamily jais2() {
  ModelFamily family = arcee();
  family.model_type = family.gguf = "jais2";
  family.classes = "Jais2";
  family.block.norm = NormKind::kLayer;
  family.block.norm_bias = true;
  family.eps_key = "layer_norm_eps";
  family.defaults = R"({"eos_token_id": 150024, "attention_bias": true, "mlp_bias": true})";
  return family;
}

ModelFamily persimmon() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.self.query_key_value", "layers.{}.self_attn.query_key_value", ""},
              {"encoder.layer.{}.attention.self.query_norm", "layers.{}.self_attn.q_layernorm", ""},
              {"encoder.layer.{}.attention.self.key_norm", "layers.{}.self_attn.k_layernorm", ""},
              {"encoder.layer.{}.attention.output.dense", "layers.{}.self_attn.dense", ""},
              {"encoder.layer.{}.intermediate.dense", "layers.{}.mlp.dense_h_to_4h", ""},
              {"encoder.layer.{}.output.dense", "layers.{}.mlp.dense_4h_to_h", ""},
              {"encoder.final_norm", "final_layernorm", ""}},
             llama_modules());
  ModelFamily family = arcee();
  family.model_type = "persimmon";
  family.gguf = "";
  family.classes = "Persimmon";
  family.modules = kModules;
  family.block = {.pre_norm = true, .fused_qkv = BlockSpec::Fused::kHeads};
  family.eps_key = "layer_norm_eps";
  family.defaults = R"({"eos_token_id": 2})";
  family.keys = {"qk_layernorm"};
  family.off_keys = {"num_key_value_heads", "head_dim"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    config.block.query_key_norm = keys.boolean("qk_layernorm", true);
  };
  return family;
}

}  // namespace rf
