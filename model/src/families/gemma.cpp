// Gemma (arXiv 2403.08295) and Gemma 2 (arXiv 2408.00118): Llama's blocks with RMS norms of 1 + weight, gates of GELU
// and embeddings times the root of their width. Gemma 2 caps scores and logits, has norms of each part's result, too,
// and windows in every second layer; VaultGemma (arXiv 2510.15001) lacks these norms.
#include <cmath>

#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

void read_gemma(const Keys& keys, ModelConfig& config) {
  read_attention_bias(keys, config);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
}

}  // namespace

ModelFamily gemma() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "gemma";
  family.classes = "Gemma";
  family.block.norm_plus_one = true;
  family.activation = Activation::kGeluTanh;
  family.defaults = R"({"num_key_value_heads": 16, "tie_word_embeddings": true, "eos_token_id": 1})";
  family.keys = {"attention_bias", "hidden_activation"};
  family.off_keys = {"use_bidirectional_attention"};
  // transformers reads gelu as its approximation, for files that were saved before that had a name.
  family.rewrite = [](nlohmann::json& object, const std::string&) {
    if (object.value("hidden_act", nlohmann::json()) == "gelu") object["hidden_act"] = "gelu_pytorch_tanh";
  };
  family.read = read_gemma;
  return family;
}

ModelFamily gemma2() {
  ModelFamily family = gemma3();
  family.model_type = family.gguf = "gemma2";
  family.classes = "Gemma2";
  family.other_classes = "";
  family.block.query_key_norm = false;
  family.defaults = R"({"num_key_value_heads": 4, "sliding_window": 4096, "sliding_window_pattern": 2,
                        "tie_word_embeddings": true, "eos_token_id": 1, "attn_logit_softcapping": 50.0,
                        "final_logit_softcapping": 30.0})";
  family.keys = {"attention_bias", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
                 "hidden_act"};
  family.off_keys = {"use_bidirectional_attention"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_gemma(keys, config);
    config.block.attention_scale = 1 / std::sqrt(keys.number("query_pre_attn_scalar", 256, kMultiplierRange));
    config.block.score_cap = keys.number("attn_logit_softcapping", 0, kMultiplierRange);
    config.heads.logit_cap = keys.number("final_logit_softcapping", 0, kMultiplierRange);
  };
  return family;
}

ModelFamily vaultgemma() {
  ModelFamily family = gemma2();
  family.model_type = "vaultgemma";
  family.gguf = "";
  family.classes = "VaultGemma";
  family.block.post_norm = false;
  return family;
}

}  // namespace rf
