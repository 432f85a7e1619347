// ALBERT (Lan et al. 2019, arXiv 1909.11942): BERT's layers, all with the same weights, below narrower embeddings.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

#define RF_ALBERT_LAYER "encoder.albert_layer_groups.{}.albert_layers.0."
constexpr ModuleName kAlbertModules[] = {
    {"embeddings_project", "encoder.embedding_hidden_mapping_in", ""},
    {"encoder.layer.{}.attention.self.query", RF_ALBERT_LAYER "attention.query", ""},
    {"encoder.layer.{}.attention.self.key", RF_ALBERT_LAYER "attention.key", ""},
    {"encoder.layer.{}.attention.self.value", RF_ALBERT_LAYER "attention.value", ""},
    {"encoder.layer.{}.attention.output.dense", RF_ALBERT_LAYER "attention.dense", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", RF_ALBERT_LAYER "attention.LayerNorm", ""},
    {"encoder.layer.{}.intermediate.dense", RF_ALBERT_LAYER "ffn", ""},
    {"encoder.layer.{}.output.dense", RF_ALBERT_LAYER "ffn_output", ""},
    {"encoder.layer.{}.output.LayerNorm", RF_ALBERT_LAYER "full_layer_layer_norm", ""},
    {"pooler.dense", "pooler", ""},
    {"cls.predictions.transform.dense", "predictions.dense", ""},
    {"cls.predictions.transform.LayerNorm", "predictions.LayerNorm", ""},
    {"cls.predictions.decoder", "predictions.decoder", ""},
    {"cls.predictions", "predictions", ""},
};
#undef RF_ALBERT_LAYER

}  // namespace

// num_hidden_groups and inner_group_num must be 1, as for every family.
ModelFamily albert() {
  ModelFamily family = like_bert("albert", "Albert", "albert.", kAlbertModules);
  family.block.shared = true;
  family.activation = Activation::kGeluTanh;
  family.defaults = R"({"type_vocab_size": 2, "pad_token_id": 0, "max_position_embeddings": 512,
    "classifier_dropout": 0.1,
    "embedding_size": 128})";
  family.keys = {"embedding_size"};
  family.read = [](const Keys&, ModelConfig& config) { config.equal_projection = true; };
  return family;
}

}  // namespace rf
