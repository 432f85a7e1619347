// Mixtures of experts: Mixtral (arXiv 2401.04088), Mistral's blocks; Qwen3-MoE (arXiv 2505.09388), Qwen3's; OLMoE
// (arXiv 2409.02060), Llama's, with norms of all queries together and of all keys; and gpt-oss (arXiv 2508.10925),
// whose attention has sinks, biases and windows in every second layer, and whose experts have biases and gates with a
// limit.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"
#include "rf/model/weights.h"

namespace rf {

namespace {

constexpr int64_t kMaxExperts = 1024;

std::vector<ModuleName> with_experts(std::string_view router, std::string_view gate, std::string_view up,
                                     std::string_view down) {
  return joined({{"encoder.layer.{}.intermediate.router", router, "blk.{}.ffn_gate_inp"},
                 {"encoder.layer.{}.intermediate.experts.gate", "", "blk.{}.ffn_gate_exps"},
                 {"encoder.layer.{}.intermediate.experts.up", "", "blk.{}.ffn_up_exps"},
                 {"encoder.layer.{}.intermediate.experts.down", "", "blk.{}.ffn_down_exps"},
                 {"encoder.layer.{}.intermediate.experts.{}.gate", gate, ""},
                 {"encoder.layer.{}.intermediate.experts.{}.up", up, ""},
                 {"encoder.layer.{}.intermediate.experts.{}.down", down, ""}},
                llama_modules());
}

void read_qwen3_moe(const Keys& keys, ModelConfig& config) {
  BlockSpec& block = config.block;
  read_expert_counts(keys, config);
  read_attention_bias(keys, config);
  block.expert_width = extent(keys, "moe_intermediate_size");
  block.expert_shares_one = keys.boolean("norm_topk_prob", false);
  block.expert_interval = extent(keys, "decoder_sparse_step", kMaxForeignLayers);
  block.expert_offset = block.expert_interval - 1;
  const nlohmann::json* const dense = keys.list("mlp_only_layers");
  for (const nlohmann::json& layer : dense == nullptr ? nlohmann::json::array() : *dense) {
    if (!layer.is_number_integer())
      fail(keys.file(), "mlp_only_layers must be numbers of layers, got {}", shown(*dense));
    config.dense_layers.push_back(layer.get<int64_t>());
  }
}

void read_gpt_oss(const Keys& keys, ModelConfig& config) {
  read_expert_counts(keys, config);
  read_attention_bias(keys, config, true);
  if (const nlohmann::json* const quantized = given(keys.json(), "quantization_config"); quantized != nullptr) {
    const bool is_known = quantized->is_object() && quantized->value("quant_method", nlohmann::json()) == "mxfp4";
    if (!is_known) fail(keys.file(), "quantization_config must be absent or of mxfp4, got {}", shown(*quantized));
    for (const int64_t width : {config.hidden_size, config.intermediate_size}) {
      if (width % kMxfp4Block != 0)
        fail(keys.file(), "hidden_size and intermediate_size must be multiples of 32 with mxfp4, got {}", width);
    }
    config.block.expert_files = BlockSpec::ExpertFiles::kBlocks;
  }
  config.block.expert_limit = keys.number("swiglu_limit", 7, kMultiplierRange);
  config.block.expert_slope = keys.number("swiglu_alpha", 1.702, kMultiplierRange);
}

}  // namespace

void read_expert_counts(const Keys& keys, ModelConfig& config) {
  BlockSpec& block = config.block;
  block.experts = keys.integer({"num_local_experts", "num_experts"}, 1, kMaxExperts);
  if (block.experts == 0) fail(keys.file(), "num_local_experts or num_experts must be given, got none");
  block.experts_per_token = extent(keys, "num_experts_per_tok", block.experts);
}

ModelFamily mixtral() {
  static const std::vector<ModuleName> kModules =
      with_experts("layers.{}.block_sparse_moe.gate", "layers.{}.block_sparse_moe.experts.{}.w1",
                   "layers.{}.block_sparse_moe.experts.{}.w3", "layers.{}.block_sparse_moe.experts.{}.w2");
  ModelFamily family = llama();
  family.model_type = "mixtral";
  family.gguf = "";
  family.classes = "Mixtral";
  family.modules = kModules;
  family.eps = 1e-5;
  family.windows = Windows::kAll;
  family.defaults = R"({"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
                        "eos_token_id": 2})";
  family.keys = {"num_local_experts", "num_experts", "num_experts_per_tok"};
  family.read = read_expert_counts;
  return family;
}

ModelFamily qwen3_moe() {
  static const std::vector<ModuleName> kModules =
      with_experts("layers.{}.mlp.gate", "layers.{}.mlp.experts.{}.gate_proj", "layers.{}.mlp.experts.{}.up_proj",
                   "layers.{}.mlp.experts.{}.down_proj");
  ModelFamily family = llama();
  family.model_type = "qwen3_moe";
  family.gguf = "qwen3moe";
  family.classes = "Qwen3Moe";
  family.modules = kModules;
  family.block.query_key_norm = true;
  family.windows = Windows::kAll;
  family.defaults = R"({"num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8,
                        "moe_intermediate_size": 768, "decoder_sparse_step": 1})";
  family.keys = {"attention_bias",      "num_experts",           "num_local_experts",
                 "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                 "decoder_sparse_step", "mlp_only_layers",       "max_window_layers"};
  // sliding_window counts with use_sliding_window alone.
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    if (!Keys(object, where, "").boolean("use_sliding_window", false)) object["sliding_window"] = nullptr;
  };
  family.read = read_qwen3_moe;
  return family;
}

ModelFamily olmoe() {
  ModelFamily family = qwen3_moe();
  family.model_type = family.gguf = "olmoe";
  family.classes = "Olmoe";
  family.block = llama_block();
  family.block.whole_query_key_norm = true;
  family.eps = 1e-5;
  family.windows = Windows::kNone;
  family.defaults = R"({"num_experts": 64, "num_experts_per_tok": 8, "eos_token_id": 50279})";
  family.keys = {"attention_bias", "num_experts", "num_local_experts", "num_experts_per_tok", "norm_topk_prob"};
  family.off_keys = {"clip_qkv"};
  family.rewrite = [](nlohmann::json&, const std::string&) {};
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_expert_counts(keys, config);
    read_attention_bias(keys, config);
    config.block.expert_shares_one = keys.boolean("norm_topk_prob", false);
  };
  return family;
}

ModelFamily gpt_oss() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.self.sinks", "layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
              {"encoder.layer.{}.output.LayerNorm", "layers.{}.post_attention_layernorm", "blk.{}.post_attention_norm"},
              {"encoder.layer.{}.intermediate.experts", "layers.{}.mlp.experts", ""}},
             with_experts("layers.{}.mlp.router", "", "", ""));
  ModelFamily family = llama();
  family.model_type = "gpt_oss";
  family.gguf = "gpt-oss";
  family.classes = "GptOss";
  family.modules = kModules;
  family.any_activation = false;
  family.block.sinks = family.block.expert_bias = true;
  family.block.expert_files = BlockSpec::ExpertFiles::kInterleaved;
  family.eps = 1e-5;
  family.windows = Windows::kPattern;
  family.defaults = R"({"num_key_value_heads": 8, "num_local_experts": 128, "num_experts_per_tok": 4,
                        "sliding_window": 128, "sliding_window_pattern": 2})";
  family.keys = {"attention_bias",      "num_local_experts",      "num_experts",
                 "num_experts_per_tok", "experts_per_token",      "swiglu_limit",
                 "swiglu_alpha",        "initial_context_length", "quantization_config"};
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    const bool rotates = given(object, "rope_parameters") != nullptr || given(object, "rope_scaling") != nullptr;
    if (!rotates && object.contains("model_type")) fail(where, "rope_parameters must be given in a gpt_oss, got none");
  };
  family.read = read_gpt_oss;
  return family;
}

}  // namespace rf
