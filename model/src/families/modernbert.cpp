// ModernBERT (Warner et al. 2024, arXiv 2412.13663): norms before attention (except in layer 0) and feed-forward
// networks; gated feed-forward networks; windows in all layers but every third, with a second rotation.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kModernModules[] = {
    {"embeddings.word_embeddings", "embeddings.tok_embeddings", "token_embd"},
    {"embeddings.LayerNorm", "embeddings.norm", "token_embd_norm"},
    {"encoder.layer.{}.attention.output.LayerNorm", "layers.{}.attn_norm", "blk.{}.attn_norm"},
    {"encoder.layer.{}.attention.self.query_key_value", "layers.{}.attn.Wqkv", "blk.{}.attn_qkv"},
    {"encoder.layer.{}.attention.output.dense", "layers.{}.attn.Wo", "blk.{}.attn_output"},
    {"encoder.layer.{}.output.LayerNorm", "layers.{}.mlp_norm", "blk.{}.ffn_norm"},
    {"encoder.layer.{}.intermediate.gate_up", "layers.{}.mlp.Wi", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "layers.{}.mlp.Wo", "blk.{}.ffn_down"},
    {"encoder.final_norm", "final_norm", "output_norm"},
    {"cls.predictions.transform.dense", "head.dense", ""},
    {"cls.predictions.transform.LayerNorm", "head.norm", ""},
    {"cls.predictions.decoder", "decoder", ""},
    {"classifier.dense", "head.dense", ""},
    {"classifier.norm", "head.norm", ""},
    {"classifier.out_proj", "classifier", ""},
    {"qa_outputs", "classifier", ""},
};

HeadSpec modern_heads() {
  using Before = HeadSpec::Before;
  return {.sequence = Before::kDense,
          .choice = Before::kDense,
          .token = Before::kDense,
          .answer = Before::kDense,
          .bare_pooler = false,
          .dense_norm = true,
          .drops = HeadSpec::Drops::kLast,
          .answer_drops = true};
}

void read_heads(const Keys& keys, ModelConfig& config) {
  using Bias = HeadSpec::VocabularyBias;
  HeadSpec& heads = config.heads;
  heads.activation = heads.transform_activation = activation_in(keys, "classifier_activation", Activation::kGelu);
  heads.dense_bias = heads.transform_bias = keys.boolean("classifier_bias", false);
  heads.vocabulary_bias = keys.boolean("decoder_bias", true) ? Bias::kOfDecoder : Bias::kNone;
  config.classifier_pooling = pooling_of(keys, {"cls", "mean"});
}

void read_modern(const Keys& keys, ModelConfig& config) {
  config.block.norm_bias = keys.boolean("norm_bias", false);
  read_biases(keys, config);
  read_heads(keys, config);
  const int64_t window = keys.integer({"local_attention"}, 2, kMaxReportedLength) / 2;
  const int64_t interval = extent(keys, "global_attn_every_n_layers", kMaxReportedLayers);
  if (const nlohmann::json* const other = given(keys.json(), "sliding_window"))  // which sets local_attention
    fail(keys.file(), "sliding_window must be absent or null in a modernbert, got {}", shown(*other));
  read_layer_types(
      keys, window, [=](int64_t layer) { return layer % interval != 0; }, config);
}

// In files of transformers 4 layers with windows rotate as the others where their own base is null.
void rewrite_modern(nlohmann::json& object, const std::string&) {
  const auto local = object.find("local_rope_theta");
  if (local == object.end() || !local->is_null()) return;
  const nlohmann::json* const global = given(object, "global_rope_theta");
  *local = global != nullptr ? *global : nlohmann::json(find_rotary_family("modernbert")->base);
}

BlockSpec block_of_files() {
  BlockSpec block = modernbert_block();
  block.fused_qkv = BlockSpec::Fused::kParts;
  block.fused_gate = BlockSpec::FusedGate::kGateUp;
  return block;
}

}  // namespace

ModelFamily modernbert() {
  return {.model_type = "modernbert",
          .gguf = "modern-bert",
          .classes = "ModernBert",
          .prefix = "model.",
          .modules = kModernModules,
          .heads = Family::kBert,
          .block = block_of_files(),
          .layers_of_heads = modern_heads(),
          .token_types = false,
          .activation = Activation::kGelu,
          .any_activation = true,
          .activation_key = "hidden_activation",
          .eps_key = "norm_eps",
          .eps = 1e-5,
          .defaults = R"({"pad_token_id": 50283, "local_attention": 128, "global_attn_every_n_layers": 3})",
          .keys = {"norm_bias", "attention_bias", "mlp_bias", "decoder_bias", "classifier_bias",
                   "classifier_activation", "position_embedding_type", "classifier_pooling", "local_attention",
                   "layer_types", "global_attn_every_n_layers", "global_rope_theta", "local_rope_theta",
                   "sparse_prediction", "sparse_pred_ignore_index"},
          .rewrite = rewrite_modern,
          .read = read_modern};
}

}  // namespace rf
