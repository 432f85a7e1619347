// GLM-4 (Zeng et al. 2024, arXiv 2406.12793): Llama's blocks with a joined gate, biases of queries, keys and values,
// and adjacent pairs of half of a head; GLM-4-0414, "glm4", norms the result of each part, too.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily glm() {
  static const std::vector<ModuleName> kModules = joined(
      {{"encoder.layer.{}.intermediate.gate_up", "layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up"}}, llama_modules());
  ModelFamily family = llama();
  family.model_type = "glm";
  family.gguf = "";
  family.classes = "Glm";
  family.modules = kModules;
  family.block.fused_gate = BlockSpec::FusedGate::kGateUp;
  family.eps = 0.00000015625;
  family.defaults = R"({"num_key_value_heads": 2, "eos_token_id": [151329, 151336, 151338]})";
  family.keys = {"attention_bias"};
  family.rewrite = [](nlohmann::json& object, const std::string&) {
    if (given(object, "eos_token_id") == nullptr) object.erase("eos_token_id");  // whose default stands for null, too
  };
  family.read = [](const Keys& keys, ModelConfig& config) {
    config.block.qkv_bias = keys.boolean("attention_bias", true);
  };
  return family;
}

ModelFamily glm4() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.output.post_norm", "layers.{}.post_self_attn_layernorm", ""},
              {"encoder.layer.{}.output.post_norm", "layers.{}.post_mlp_layernorm", ""}},
             glm().modules);
  ModelFamily family = glm();
  family.model_type = "glm4";
  family.classes = "Glm4";
  family.modules = kModules;
  family.block.post_norm = true;
  return family;
}

}  // namespace rf
