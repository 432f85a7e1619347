// Command R (Cohere, 2024) and R7B (arXiv 2504.00698): one layer norm without bias before both parts, which read the
// layer's input, adjacent pairs, and a factor of the logits. In R7B every fourth layer reads all tokens and does not
// rotate, the others have windows.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily cohere() {
  ModelFamily family = llama();
  family.model_type = "cohere";
  family.gguf = "command-r";
  family.classes = "Cohere";
  family.block.norm = NormKind::kLayer;
  family.block.parallel = family.block.shared_norm = true;
  family.eps_key = "layer_norm_eps";
  family.eps = 1e-5;
  family.defaults = R"({"tie_word_embeddings": true, "eos_token_id": 255001})";
  family.keys = {"attention_bias", "logit_scale"};
  family.off_keys = {"use_qk_norm"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    constexpr io::NumberRange kScale = {0, 1e6, io::NumberRange::Ends::kOpenLow};
    config.block.qkv_bias = config.block.output_bias = keys.boolean("attention_bias", false);
    config.heads.logit_scale = keys.number("logit_scale", 0.0625, kScale);
  };
  return family;
}

ModelFamily cohere2() {
  ModelFamily family = cohere();
  family.model_type = family.gguf = "cohere2";
  family.classes = "Cohere2";
  family.windows = Windows::kPattern;
  family.defaults = R"({"tie_word_embeddings": true, "eos_token_id": 255001, "sliding_window": 4096,
                        "sliding_window_pattern": 4})";
  return family;
}

}  // namespace rf
