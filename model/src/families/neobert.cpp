// NeoBERT (Le Breton et al. 2025, arXiv 2502.19587), by its authors' own class: RMS norms before attention and a gated
// feed-forward network of two thirds of intermediate_size, and a rotation of neighbouring elements.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

constexpr ModuleName kNeoModules[] = {
    {"embeddings.word_embeddings", "encoder", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", "transformer_encoder.{}.attention_norm", ""},
    {"encoder.layer.{}.attention.self.query_key_value", "transformer_encoder.{}.qkv", ""},
    {"encoder.layer.{}.attention.output.dense", "transformer_encoder.{}.wo", ""},
    {"encoder.layer.{}.output.LayerNorm", "transformer_encoder.{}.ffn_norm", ""},
    {"encoder.layer.{}.intermediate.gate_up", "transformer_encoder.{}.ffn.w12", ""},
    {"encoder.layer.{}.output.dense", "transformer_encoder.{}.ffn.w3", ""},
    {"encoder.final_norm", "layer_norm", ""},
    {"cls.predictions.decoder", "decoder", ""},
    {"classifier.dense", "dense", ""},
    {"classifier.out_proj", "classifier", ""},
};

void read_neo(const Keys&, ModelConfig& config) {
  config.embedding_norm = false;
  constexpr int64_t kMultiple = 8;
  const int64_t two_thirds = 2 * config.intermediate_size / 3;
  config.intermediate_size = (two_thirds + kMultiple - 1) / kMultiple * kMultiple;
}

}  // namespace

ModelFamily neobert() {
  BlockSpec block = llama_block();
  block.fused_qkv = BlockSpec::Fused::kHeads;
  block.fused_gate = BlockSpec::FusedGate::kGateUp;
  return {.model_type = "neobert",
          .classes = "NeoBERT",
          .prefix = "model.",
          .modules = kNeoModules,
          .heads = Family::kBert,
          .block = block,
          .layers_of_heads = {.sequence = HeadSpec::Before::kDense,
                              .bare_pooler = false,
                              .activation = Activation::kTanh,
                              .transform = HeadSpec::Transform::kNone,
                              .vocabulary_bias = HeadSpec::VocabularyBias::kOfDecoder},
          .token_types = false,
          .layout = RotaryLayout::kPairs,
          .eps_key = "norm_eps",
          .eps = 1e-6,
          .defaults = R"({"pad_token_id": 0, "tie_word_embeddings": false, "max_position_embeddings": 4096,
                          "rope_theta": 10000.0})",
          .keys = {"auto_map", "embedding_init_range", "decoder_init_range", "max_length", "flash_attention",
                   "base_scale", "dim_head", "kwargs"},
          .renamed_keys = {{"max_length", "max_position_embeddings"}},
          .rewrite =
              [](nlohmann::json& object, const std::string&) {
                if (object.value("hidden_act", nlohmann::json()) == "swiglu" ||
                    object.value("hidden_act", nlohmann::json()) == "SwiGLU") {
                  object["hidden_act"] = "silu";
                }
              },
          .read = read_neo};
}

}  // namespace rf
