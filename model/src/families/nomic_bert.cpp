// Nomic BERT (Nussbaum et al. 2024, arXiv 2402.01613): BERT's embeddings and heads around layers with rotation, a gated
// feed-forward network and no biases.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kNomicModules[] = {
    {"embeddings.word_embeddings", "embeddings.word_embeddings", "token_embd"},
    {"embeddings.token_type_embeddings", "embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "emb_ln", "token_embd_norm"},
    {"encoder.layer.{}.attention.self.query_key_value", "encoder.layers.{}.attn.Wqkv", "blk.{}.attn_qkv"},
    {"encoder.layer.{}.attention.output.dense", "encoder.layers.{}.attn.out_proj", "blk.{}.attn_output"},
    {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layers.{}.norm1", "blk.{}.attn_output_norm"},
    {"encoder.layer.{}.intermediate.gate", "encoder.layers.{}.mlp.fc12", "blk.{}.ffn_gate"},
    {"encoder.layer.{}.intermediate.dense", "encoder.layers.{}.mlp.fc11", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "encoder.layers.{}.mlp.fc2", "blk.{}.ffn_down"},
    {"encoder.layer.{}.output.LayerNorm", "encoder.layers.{}.norm2", "blk.{}.layer_output_norm"},
    {"pooler.dense", "pooler.dense", ""},
    {"cls.predictions.transform.LayerNorm", "cls.predictions.transform.layer_norm", ""},
};

// rotary_scaling_factor of the authors' own class is that of "dynamic" past max_trained_positions.
void rewrite_nomic_scaling(nlohmann::json& object, const std::string& where) {
  const nlohmann::json factor = object.value("rotary_scaling_factor", nlohmann::json());
  if (factor.is_null()) return;
  put_spelling(object, "rope_scaling", {{"rope_type", "dynamic"}, {"factor", factor}}, "rotary_scaling_factor", where);
  object["max_position_embeddings"] = object.value("max_trained_positions", nlohmann::json(2048));
}

// "swiglu" is silu of the gate.
void rewrite_nomic(nlohmann::json& object, const std::string& where) {
  if (given(object, "n_embd") == nullptr) {
    if (const nlohmann::json* const factor = given(object, "rotary_scaling_factor"))
      fail(where, "rotary_scaling_factor must be absent or null without n_embd, got {}", shown(*factor));
    return;
  }
  if (object.value("hidden_act", nlohmann::json()) != "swiglu")
    fail(where, "activation_function must be swiglu or gelu, got {}",
         shown(object.value("hidden_act", nlohmann::json())));
  object["hidden_act"] = "silu";
  rewrite_nomic_scaling(object, where);
}

void read_experts(const Keys& keys, ModelConfig& config) {
  constexpr int64_t kMaxExperts = 1024;
  BlockSpec& block = config.block;
  block.qkv_bias = block.output_bias = keys.boolean("qkv_proj_bias", true);
  block.up_bias = keys.boolean("mlp_fc1_bias", true);
  block.mlp_bias = keys.boolean("mlp_fc2_bias", true);
  if (block.up_bias && !block.mlp_bias) fail(keys.file(), "mlp_fc2_bias must be true where mlp_fc1_bias is, got false");
  if (keys.integer({"ffn_div"}, 1, kMaxExperts) > 1)
    fail(keys.file(), "ffn_div must be absent or 1, got {}", shown(keys.json()["ffn_div"]));
  const int64_t interval = keys.integer({"moe_every_n_layers"}, 0, kMaxReportedLayers);
  if (interval == 0) return;
  block.expert_interval = interval;
  block.expert_offset = 1;  // no layer has the rest 1 by 1
  block.expert_shares_one = false;
  block.expert_files = BlockSpec::ExpertFiles::kRows;
  block.experts = keys.integer({"num_experts"}, 1, kMaxExperts);
  block.experts_per_token = keys.integer({"moe_top_k"}, 1, block.experts);
  if (block.experts == 0 || block.experts_per_token == 0)
    fail(keys.file(), "num_experts and moe_top_k must be given with moe_every_n_layers, got none");
}

}  // namespace

ModelFamily nomic_bert() {
  return {.model_type = "nomic_bert",
          .gguf = "nomic-bert",
          .classes = "NomicBert",
          .prefix = "nomic_bert.",
          .old_prefix = "bert.",
          .modules = kNomicModules,
          .heads = Family::kBert,
          .block = {.gated = true,
                    .qkv_bias = false,
                    .output_bias = false,
                    .mlp_bias = false,
                    .fused_qkv = BlockSpec::Fused::kParts},
          .layers_of_heads = {.bare_pooler = false},
          .classless = {Head::kQuestionAnswering, Head::kMultipleChoice},
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .defaults = R"({"type_vocab_size": 2, "pad_token_id": 0})",
          .keys = {"head_dim", "auto_map", "rotary_emb_base", "rotary_scaling_factor", "max_trained_positions",
                   "use_xentropy", "pad_vocab_size_multiple", "dense_seq_output"},
          .renamed_keys = {{"n_embd", "hidden_size"},
                           {"n_layer", "num_hidden_layers"},
                           {"n_head", "num_attention_heads"},
                           {"n_inner", "intermediate_size"},
                           {"n_positions", "max_position_embeddings"},
                           {"layer_norm_epsilon", "layer_norm_eps"},
                           {"activation_function", "hidden_act"},
                           {"rotary_emb_base", "rope_theta"}},
          .off_keys = {"prenorm", "parallel_block", "parallel_block_tied_norm", "use_rms_norm", "qkv_proj_bias",
                       "mlp_fc1_bias", "mlp_fc2_bias", "reorder_and_upcast_attn"},
          .rewrite = rewrite_nomic};
}

// Version 2: no gate, biases, and experts in every second layer.
ModelFamily nomic_bert_moe() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.intermediate.dense", "encoder.layers.{}.mlp.fc1", ""},
              {"encoder.layer.{}.intermediate.router", "encoder.layers.{}.mlp.router.layer", ""},
              {"encoder.layer.{}.intermediate.experts", "encoder.layers.{}.mlp.experts.mlp", ""},
              {"encoder.layer.{}.output.experts", "encoder.layers.{}.mlp.experts", ""}},
             kNomicModules);
  ModelFamily family = nomic_bert();
  family.model_type = "nomic_bert_moe";
  family.gguf = "";
  family.variant_of = "nomic_bert";
  family.is_variant = [](const nlohmann::json& object) {
    const nlohmann::json* const activation = given(object, "activation_function");
    return activation != nullptr && activation->is_string() && activation->get<std::string>().starts_with("gelu");
  };
  family.modules = kModules;
  family.block = {.fused_qkv = BlockSpec::Fused::kParts};
  family.layout = RotaryLayout::kHalves;
  family.keys.insert(family.keys.end(), {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "ffn_div",
                                         "moe_every_n_layers", "num_experts", "moe_top_k"});
  family.off_keys = {"prenorm",
                     "parallel_block",
                     "parallel_block_tied_norm",
                     "use_rms_norm",
                     "reorder_and_upcast_attn",
                     "moe_normalize_expert_weights",
                     "num_shared_experts",
                     "expert_choice_router"};
  family.rewrite = rewrite_nomic_scaling;
  family.read = read_experts;
  return family;
}

}  // namespace rf
