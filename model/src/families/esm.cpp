// ESM-2 (Lin et al. 2023, doi 10.1126/science.ade2574), a protein language model: norms before the parts of a layer,
// and rotations; and its forerunner ESM-1b (Rives et al. 2021, doi 10.1073/pnas.2016239118), with trained positions.
// Training chose 15 % of the tokens and replaced 80 % of these by masks, whose embeddings are 0; the embeddings of
// other texts are scaled to the same share.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

void read_esm(const Keys& keys, ModelConfig& config) {
  config.embedding_norm = keys.boolean("emb_layer_norm_before", false);
  config.final_norm = true;
  if (!keys.boolean("token_dropout", false)) return;
  constexpr double kKept = 1 - 0.15 * 0.8;
  config.embedding_scale = kKept;
  if (given(keys.json(), "mask_token_id") == nullptr)
    fail(keys.file(), "mask_token_id must be given with token_dropout, got none");
  config.dropped_id = keys.integer({"mask_token_id"}, 0, config.vocab_size - 1);
}

void read_esm1(const Keys& keys, ModelConfig& config) {
  read_esm(keys, config);
  read_padding_row(keys, config);
}

}  // namespace

ModelFamily esm() {
  static const std::vector<ModuleName> kModules =
      joined({{"embeddings.LayerNorm", "embeddings.layer_norm", ""},
              {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.attention.LayerNorm", ""},
              {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.LayerNorm", ""},
              {"encoder.final_norm", "encoder.emb_layer_norm_after", ""},
              {"cls.predictions.decoder.bias", "lm_head.bias", ""}},
             roberta_modules());
  ModelFamily family = like_bert("esm", "Esm", "esm.", kModules);
  family.block.pre_norm = true;
  family.layers_of_heads = roberta_heads();
  family.layers_of_heads.vocabulary_bias = HeadSpec::VocabularyBias::kOfDecoder;
  family.classless = {Head::kQuestionAnswering, Head::kMultipleChoice};
  family.token_types = false;
  family.rotates = true;
  family.frequencies = "rotary_embeddings.inv_freq";  // once rounded to 16 bits
  family.positions = {};
  family.any_activation = false;
  family.defaults = R"({"pad_token_id": 1, "max_position_embeddings": 1026, "hidden_dropout_prob": 0.1,
                        "attention_probs_dropout_prob": 0.1})";
  family.keys = {"position_embedding_type", "emb_layer_norm_before", "token_dropout", "mask_token_id"};
  family.off_keys = {"is_folding_model", "esmfold_config", "vocab_list", "is_decoder", "add_cross_attention"};
  family.read = read_esm;
  return family;
}

ModelFamily esm1() {
  ModelFamily family = esm();
  family.model_type = "esm1";
  family.keys.emplace_back("rope_theta");
  family.variant_of = "esm";
  family.is_variant = [](const nlohmann::json& object) {
    const nlohmann::json* const type = given(object, "position_embedding_type");
    return type == nullptr || *type == "absolute";
  };
  family.rotates = false;
  family.frequencies = "";
  family.positions = {.learned = true};
  family.read = read_esm1;
  return family;
}

}  // namespace rf
