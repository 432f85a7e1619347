// JinaBERT (Günther et al. 2023, arXiv 2310.19923), by its authors' own classes, whose files have model_type bert: BERT
// with ALiBi in both directions and a gated feed-forward network. The class for code also norms queries and keys, and
// adds the input of attention to its result twice.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

using nlohmann::json;

constexpr ModuleName kJinaModules[] = {
    {"encoder.layer.{}.intermediate.gate_up", "encoder.layer.{}.mlp.gated_layers", ""},
    {"encoder.layer.{}.output.dense", "encoder.layer.{}.mlp.wo", ""},
    {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.mlp.layernorm", ""},
};

constexpr ModuleName kModulesForCode[] = {
    {"encoder.layer.{}.attention.self.query_norm", "encoder.layer.{}.attention.self.layer_norm_q", ""},
    {"encoder.layer.{}.attention.self.key_norm", "encoder.layer.{}.attention.self.layer_norm_k", ""},
    {"encoder.layer.{}.attention.output.post_norm", "encoder.layer.{}.attention.output.LayerNorm", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.layer_norm_1", ""},
    {"encoder.layer.{}.intermediate.gate_up", "encoder.layer.{}.mlp.up_gated_layer", ""},
    {"encoder.layer.{}.output.dense", "encoder.layer.{}.mlp.down_layer", ""},
    {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.layer_norm_2", ""},
};

bool is_jinas(const json& object) {
  const json* const positions = given(object, "position_embedding_type");
  return positions != nullptr && *positions == "alibi";
}

bool is_for_code(const json& object) {
  const json* const path = given(object, "_name_or_path");
  const bool named =
      path != nullptr && path->is_string() && path->get<std::string>().find("qk-post-norm") != std::string::npos;
  return is_jinas(object) && (named || has_own_class(object, "qk-post-norm"));
}

}  // namespace

ModelFamily jina_bert() {
  ModelFamily family = like_bert("jina_bert", "JinaBert", "bert.", kJinaModules);
  family.variant_of = "bert";
  family.is_variant = [](const json& object) { return is_jinas(object) && !is_for_code(object); };
  family.block = {.gated = true, .up_bias = false, .fused_gate = BlockSpec::FusedGate::kGateUp};
  family.positions = {.relative = PositionSpec::Relative::kLinear};
  family.any_activation = false;  // GELU, whatever hidden_act says
  family.activation_key = "feed_forward_type";
  family.keys = {"position_embedding_type", "hidden_act", "auto_map", "emb_pooler", "attn_implementation"};
  family.rewrite = [](json& object, const std::string& where) {
    if (object.value("feed_forward_type", json("original")) != "geglu")
      fail(where, "feed_forward_type must be geglu, got {}", shown(object.value("feed_forward_type", json())));
    object["feed_forward_type"] = "gelu";
  };
  return family;
}

ModelFamily jina_bert_for_code() {
  ModelFamily family = jina_bert();
  family.model_type = "jina_bert for code";
  family.is_variant = is_for_code;
  family.modules = kModulesForCode;
  family.block.whole_query_key_norm = family.block.attention_twice = true;
  family.block.fused_gate = BlockSpec::FusedGate::kUpGate;
  return family;
}

}  // namespace rf
