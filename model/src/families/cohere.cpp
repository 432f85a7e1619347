// Command R (Cohere, 2024) and R7B (arXiv 2504.00698): one layer norm without bias before both parts, which read the
// layer's input, adjacent pairs, and a factor of the logits. Command R+ also norms each query and key. In R7B every
// fourth layer reads all tokens and does not rotate, the others have windows.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

ModelFamily cohere() {
  ModelFamily family = llama();
  family.model_type = "cohere";
  family.gguf = "command-r";
  family.classes = "Cohere";
  family.block.norm = NormKind::kLayer;
  family.block.parallel = family.block.shared_norm = true;
  family.block.head_norm = BlockSpec::HeadNorm::kStacked;
  family.eps_key = "layer_norm_eps";
  family.eps = 1e-5;
  family.defaults = R"({"tie_word_embeddings": true, "eos_token_id": 255001})";
  family.keys = {"attention_bias", "logit_scale", "use_qk_norm"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_attention_bias(keys, config);
    config.block.query_key_norm = keys.boolean("use_qk_norm", false);
    config.heads.logit_scale = keys.number("logit_scale", 0.0625, kMultiplierRange);
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
  family.keys = {"attention_bias", "logit_scale", "position_embedding_type"};
  family.off_keys = {"use_qk_norm"};  // which its class ignores
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    const nlohmann::json* const type = given(object, "position_embedding_type");
    if (type != nullptr && *type != "rope_gptj")
      fail(where, "position_embedding_type must be absent or rope_gptj, got {}", shown(*type));
  };
  return family;
}

}  // namespace rf
