// GTE (Zhang et al. 2024, arXiv 2407.19669): BERT's embeddings, biases and norms around layers with rotation and a
// gated feed-forward network. "new" is the authors' own class, which adds a scaling of the rotation; files of
// snowflake-arctic-embed-m-v2.0 call the same class "gte".
#include <cmath>

#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kGteModules[] = {
    {"encoder.layer.{}.attention.self.query_key_value", "encoder.layer.{}.attention.qkv_proj", ""},
    {"encoder.layer.{}.attention.output.dense", "encoder.layer.{}.attention.o_proj", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.attn_ln", ""},
    {"encoder.layer.{}.intermediate.gate_up", "encoder.layer.{}.mlp.up_gate_proj", ""},
    {"encoder.layer.{}.output.dense", "encoder.layer.{}.mlp.down_proj", ""},
    {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.mlp_ln", ""},
    {"cls.predictions.transform.dense", "lm_head.dense", ""},
    {"cls.predictions.transform.LayerNorm", "lm_head.norm", ""},
    {"cls.predictions.decoder", "lm_head.decoder", ""},
};

// The scaling "ntk" of factor k (kexue.fm/archives/9706, Eq. 6): frequencies (k theta)^(-2i/D) / k^(2/D), as "linear"
// computes with the factor k^(2/D) and the base k theta.
void rewrite_scaling(nlohmann::json& object, const std::string& where) {
  const nlohmann::json* const scaling = given(object, "rope_scaling");
  if (scaling == nullptr || !scaling->is_object() || scaling->value("type", nlohmann::json()) != "ntk") return;
  const Keys top(object, where, ""), inside(*scaling, where, "rope_scaling.");
  constexpr io::NumberRange kFactors = {1, 1e6};
  const double factor = inside.number("factor", 1, kFactors);
  if (given(*scaling, "mixed_b") != nullptr)
    fail(where, "rope_scaling.mixed_b must be absent or null, got {}", shown((*scaling)["mixed_b"]));
  const int64_t width = top.integer({"hidden_size"}, 1, kMaxWidth),
                heads = top.integer({"num_attention_heads"}, 1, kMaxHeads);
  const double head_dim = static_cast<double>(width) / static_cast<double>(std::max<int64_t>(1, heads));
  const double base = top.number("rope_theta", 10000, {0, 1e12, io::NumberRange::Ends::kOpenLow});
  object["rope_theta"] = base * factor;
  object["rope_scaling"] = {{"rope_type", "linear"}, {"factor", std::pow(factor, 2 / head_dim)}};
}

}  // namespace

ModelFamily gte() {
  return {.model_type = "gte",
          .classes = "Gte",
          .prefix = "gte.",
          .old_prefix = "new.",
          .berts_names = true,
          .modules = kGteModules,
          .heads = Family::kBert,
          .block = {.gated = true,
                    .up_bias = false,
                    .fused_qkv = BlockSpec::Fused::kParts,
                    .fused_gate = BlockSpec::FusedGate::kUpGate},
          .layers_of_heads = {.bare_pooler = false,
                              .transform_activation = Activation::kGelu,
                              .vocabulary_bias = HeadSpec::VocabularyBias::kOfDecoder},
          .classless = {Head::kQuestionAnswering, Head::kMultipleChoice},
          .activation = Activation::kGelu,
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .defaults = R"({"type_vocab_size": 1, "pad_token_id": 1, "hidden_dropout_prob": 0.1})"};
}

ModelFamily gte_of_authors() {
  ModelFamily family = gte();
  family.model_type = "new";
  family.classes = "New";
  family.prefix = "new.";
  family.old_prefix = "gte.";
  family.layout = RotaryLayout::kHalves;
  family.layers_of_heads.transform_activation.reset();  // hidden_act
  family.defaults = R"({"type_vocab_size": 1, "pad_token_id": 0, "hidden_dropout_prob": 0.1})";
  family.keys = {"auto_map", "pack_qkv", "layer_norm_type", "position_embedding_type", "matryoshka_dimensions"};
  family.off_keys = {"logn_attention_scale", "logn_attention_clip1"};
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    constexpr std::pair<const char*, const char*> kValues[] = {{"layer_norm_type", "layer_norm"},
                                                               {"position_embedding_type", "rope"}};
    for (const auto& [key, value] : kValues) {
      const nlohmann::json* const found = given(object, key);
      if (found != nullptr && *found != value) fail(where, "{} must be {}, got {}", key, value, shown(*found));
    }
    rewrite_scaling(object, where);
  };
  return family;
}

ModelFamily gte_of_snowflake() {
  ModelFamily family = gte_of_authors();
  family.model_type = "gte of Snowflake";
  family.variant_of = "gte";
  family.is_variant = [](const nlohmann::json& object) {
    return has_own_class(object, "modeling_hf_alibaba_nlp_gte.");
  };
  family.classes = "Gte";
  return family;
}

}  // namespace rf
