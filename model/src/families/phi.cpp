// Phi-1.5 and 2 (arXiv 2309.05463): one layer norm before both parts, which read the layer's input; biases, also of the
// vocabulary; partial rotation; layer norms of queries and keys, if any. Phi-3 and 4 (arXiv 2404.14219): Llama's
// blocks, with joined projections, windows and LongRoPE.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily phi() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.output.dense", "layers.{}.self_attn.dense", "blk.{}.attn_output"},
              {"encoder.layer.{}.attention.self.query_key_value", "", "blk.{}.attn_qkv"},
              {"encoder.layer.{}.attention.self.query_norm", "layers.{}.self_attn.q_layernorm", ""},
              {"encoder.layer.{}.attention.self.key_norm", "layers.{}.self_attn.k_layernorm", ""},
              {"encoder.layer.{}.intermediate.dense", "layers.{}.mlp.fc1", "blk.{}.ffn_up"},
              {"encoder.layer.{}.output.dense", "layers.{}.mlp.fc2", "blk.{}.ffn_down"},
              {"encoder.final_norm", "final_layernorm", "output_norm"}},
             llama_modules());
  HeadSpec heads = kDecoderHeads;
  heads.vocabulary_bias = HeadSpec::VocabularyBias::kOfDecoder;
  return {.model_type = "phi",
          .gguf = "phi2",
          .classes = "Phi",
          .prefix = "model.",
          .modules = kModules,
          .block = {.pre_norm = true, .parallel = true, .shared_norm = true},
          .layers_of_heads = heads,
          .activation = Activation::kGeluTanh,
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-5,
          .defaults = R"({"eos_token_id": 2})",
          .keys = {"auto_map", "qk_layernorm"},
          .read = [](const Keys& keys, ModelConfig& config) {
            config.block.query_key_norm = keys.boolean("qk_layernorm", false);
          }};
}

ModelFamily phi3() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.self.query_key_value", "layers.{}.self_attn.qkv_proj", "blk.{}.attn_qkv"},
              {"encoder.layer.{}.intermediate.gate_up", "layers.{}.mlp.gate_up_proj", "blk.{}.ffn_up"}},
             llama_modules());
  ModelFamily family = llama();
  family.model_type = family.gguf = "phi3";
  family.classes = "Phi3";
  family.modules = kModules;
  family.block.fused_qkv = BlockSpec::Fused::kParts;
  family.block.fused_gate = BlockSpec::FusedGate::kGateUp;
  family.eps = 1e-5;
  family.windows = Windows::kAll;
  family.defaults = R"({"eos_token_id": 32000})";
  family.keys = {"num_key_value_heads", "auto_map"};
  family.off_keys = {"attention_bias", "mlp_bias", "head_dim"};
  family.read = [](const Keys&, ModelConfig&) {};
  return family;
}

}  // namespace rf
