// Granite 3 (IBM, 2024): Llama's blocks, with multipliers of embeddings, scores, results of parts and logits (muP, Yang
// et al. 2022, arXiv 2203.03466), or mixtures of experts; HyperCLOVA X (arXiv 2404.01954) has norms of results, too.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

void read_multipliers(const Keys& keys, ModelConfig& config) {
  read_biases(keys, config);
  config.embedding_scale = keys.number("embedding_multiplier", 1, kMultiplierRange);
  config.block.residual_scale = keys.number("residual_multiplier", 1, kMultiplierRange);
}

void read_granite(const Keys& keys, ModelConfig& config) {
  read_multipliers(keys, config);
  config.block.attention_scale = keys.number("attention_multiplier", 1, kMultiplierRange);
  config.heads.logit_scale = 1 / keys.number("logits_scaling", 1, kMultiplierRange);
}

}  // namespace

ModelFamily granite() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "granite";
  family.classes = "Granite";
  family.keys.insert(family.keys.end(),
                     {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"});
  family.read = read_granite;
  return family;
}

ModelFamily granitemoe() {
  static const std::vector<ModuleName> kModules = joined(
      {{"encoder.layer.{}.intermediate.router", "layers.{}.block_sparse_moe.router.layer", "blk.{}.ffn_gate_inp"},
       {"encoder.layer.{}.intermediate.experts.gate_up", "layers.{}.block_sparse_moe.input_linear", ""},
       {"encoder.layer.{}.intermediate.experts.gate", "", "blk.{}.ffn_gate_exps"},
       {"encoder.layer.{}.intermediate.experts.up", "", "blk.{}.ffn_up_exps"},
       {"encoder.layer.{}.intermediate.experts.down", "layers.{}.block_sparse_moe.output_linear",
        "blk.{}.ffn_down_exps"}},
      llama_modules());
  ModelFamily family = granite();
  family.model_type = family.gguf = "granitemoe";
  family.classes = "GraniteMoe";
  family.modules = kModules;
  family.block.expert_files = BlockSpec::ExpertFiles::kJoined;
  family.defaults = R"({"num_local_experts": 8, "num_experts_per_tok": 2, "eos_token_id": 2})";
  family.keys.insert(family.keys.end(), {"num_local_experts", "num_experts_per_tok"});
  family.off_keys = {"mlp_bias"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_granite(keys, config);
    read_expert_counts(keys, config);
  };
  return family;
}

ModelFamily hyperclovax() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.output.post_norm", "layers.{}.post_norm1", ""},
              {"encoder.layer.{}.output.post_norm", "layers.{}.post_norm2", ""}},
             llama_modules());
  ModelFamily family = granite();
  family.model_type = "hyperclovax";
  family.gguf = "";
  family.classes = "HyperCLOVAX";
  family.modules = kModules;
  family.keys.insert(family.keys.end(), {"use_post_norm", "auto_map"});
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_multipliers(keys, config);
    config.block.attention_scale = keys.number("attention_multiplier", 0, kMultiplierRange);
    config.heads.logit_scale = keys.number("logits_scaling", 1, kMultiplierRange);  // not its inverse
    config.block.post_norm = keys.boolean("use_post_norm", true);
  };
  return family;
}

}  // namespace rf
