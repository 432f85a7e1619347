// Granite 3 (IBM, 2024): Llama's blocks, with multipliers of embeddings, scores, results of parts and logits (muP, Yang
// et al. 2022, arXiv 2203.03466).
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily granite() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "granite";
  family.classes = "Granite";
  family.keys.insert(family.keys.end(),
                     {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"});
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_biases(keys, config);
    config.embedding_scale = keys.number("embedding_multiplier", 1, kMultiplierRange);
    config.block.attention_scale = keys.number("attention_multiplier", 1, kMultiplierRange);
    config.block.residual_scale = keys.number("residual_multiplier", 1, kMultiplierRange);
    config.heads.logit_scale = 1 / keys.number("logits_scaling", 1, kMultiplierRange);
  };
  return family;
}

}  // namespace rf
