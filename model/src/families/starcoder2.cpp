// StarCoder 2 (Lozhkov et al. 2024, arXiv 2402.19173): layer norms with biases, grouped keys, a feed-forward network of
// GELU, windows.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily starcoder2() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.intermediate.dense", "layers.{}.mlp.c_fc", "blk.{}.ffn_up"},
              {"encoder.layer.{}.output.dense", "layers.{}.mlp.c_proj", "blk.{}.ffn_down"}},
             llama_modules());
  ModelFamily family = llama();
  family.model_type = family.gguf = "starcoder2";
  family.classes = "Starcoder2";
  family.modules = kModules;
  family.block = {.pre_norm = true};
  family.activation = Activation::kGeluTanh;
  family.eps_key = "norm_epsilon";
  family.eps = 1e-5;
  family.windows = Windows::kAll;
  family.defaults = R"({"num_key_value_heads": 2, "tie_word_embeddings": true, "eos_token_id": 50256})";
  family.keys = {"use_bias"};
  family.read = [](const Keys& keys, ModelConfig& config) { read_all_biases(keys, "use_bias", true, config); };
  return family;
}

}  // namespace rf
