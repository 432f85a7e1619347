// RoBERTa (Liu et al. 2019, arXiv 1907.11692), XLM-RoBERTa, CamemBERT and data2vec for text: BERT's layers. The first
// position is the row after that of padding, and classification has a dense layer in place of the pooler.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

constexpr ModuleName kRobertaModules[] = {
    {"cls.predictions.transform.dense", "lm_head.dense", ""},
    {"cls.predictions.transform.LayerNorm", "lm_head.layer_norm", ""},
    {"cls.predictions.decoder", "lm_head.decoder", ""},
    {"cls.predictions", "lm_head", ""},
};

}  // namespace

void read_padding_row(const Keys& keys, ModelConfig& config) {
  config.positions.padding_id = keys.integer({"pad_token_id"}, 0, config.vocab_size - 1);
  config.positions.first_row = config.positions.padding_id + 1;
}

HeadSpec roberta_heads() {
  return {
      .sequence = HeadSpec::Before::kDense, .activation = Activation::kTanh, .transform_activation = Activation::kGelu};
}

std::span<const ModuleName> roberta_modules() { return kRobertaModules; }

ModelFamily roberta() {
  ModelFamily family = like_bert("roberta", "Roberta", "roberta.", kRobertaModules);
  family.layers_of_heads = roberta_heads();
  family.defaults = R"({"type_vocab_size": 2, "pad_token_id": 1, "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})";
  family.read = read_padding_row;
  return family;
}

ModelFamily xlm_roberta() {
  ModelFamily family = roberta();
  family.model_type = "xlm-roberta";
  family.classes = "XLMRoberta";
  return family;
}

ModelFamily data2vec_text() {
  ModelFamily family = roberta();
  family.model_type = "data2vec-text";
  family.classes = "Data2VecText";
  family.prefix = "data2vec_text.";
  return family;
}

ModelFamily camembert() {
  ModelFamily family = roberta();
  family.model_type = "camembert";
  family.classes = "Camembert";
  return family;
}

}  // namespace rf
