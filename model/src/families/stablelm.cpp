// StableLM (Stability AI, 2024, arXiv 2402.17834): Llama's blocks with layer norms and partial rotation; both parts of
// a layer may read one norm of its input, and each query and key may have a norm of its head.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily stablelm() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.self.query_norm.{}", "layers.{}.self_attn.q_layernorm.norms.{}", ""},
              {"encoder.layer.{}.attention.self.key_norm.{}", "layers.{}.self_attn.k_layernorm.norms.{}", ""}},
             llama_modules());
  ModelFamily family = llama();
  family.model_type = family.gguf = "stablelm";
  family.classes = "StableLm";
  family.modules = kModules;
  family.block.norm = NormKind::kLayer;
  family.block.norm_bias = true;
  family.block.head_norm = BlockSpec::HeadNorm::kApart;
  family.eps_key = "layer_norm_eps";
  family.eps = 1e-5;
  family.defaults = R"({"num_key_value_heads": 32, "eos_token_id": 0})";
  family.keys = {"use_qkv_bias", "use_parallel_residual", "qk_layernorm", "auto_map"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    config.block.qkv_bias = keys.boolean("use_qkv_bias", false);
    config.block.query_key_norm = keys.boolean("qk_layernorm", false);
    config.block.parallel = config.block.shared_norm = keys.boolean("use_parallel_residual", false);
  };
  return family;
}

}  // namespace rf
