// DistilBERT (Sanh et al. 2019, arXiv 1910.01108): BERT's layers without token types and pooler.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

constexpr ModuleName kDistilModules[] = {
    {"encoder.layer.{}.attention.self.query", "transformer.layer.{}.attention.q_lin", ""},
    {"encoder.layer.{}.attention.self.key", "transformer.layer.{}.attention.k_lin", ""},
    {"encoder.layer.{}.attention.self.value", "transformer.layer.{}.attention.v_lin", ""},
    {"encoder.layer.{}.attention.output.dense", "transformer.layer.{}.attention.out_lin", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", "transformer.layer.{}.sa_layer_norm", ""},
    {"encoder.layer.{}.intermediate.dense", "transformer.layer.{}.ffn.lin1", ""},
    {"encoder.layer.{}.output.dense", "transformer.layer.{}.ffn.lin2", ""},
    {"encoder.layer.{}.output.LayerNorm", "transformer.layer.{}.output_layer_norm", ""},
    {"classifier.dense", "pre_classifier", ""},
    {"classifier.out_proj", "classifier", ""},
    {"cls.predictions.transform.dense", "vocab_transform", ""},
    {"cls.predictions.transform.LayerNorm", "vocab_layer_norm", ""},
    {"cls.predictions.decoder", "vocab_projector", ""},
};

}  // namespace

ModelFamily distilbert() {
  ModelFamily family = like_bert("distilbert", "DistilBert", "distilbert.", kDistilModules);
  family.layers_of_heads = {.sequence = HeadSpec::Before::kDense,
                            .choice = HeadSpec::Before::kDense,
                            .bare_pooler = false,
                            .activation = Activation::kRelu,
                            .drops = HeadSpec::Drops::kLast,
                            .vocabulary_bias = HeadSpec::VocabularyBias::kOfDecoder};
  family.token_types = false;
  family.defaults = R"({"pad_token_id": 0, "max_position_embeddings": 512, "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "classifier_dropout": 0.2})";
  family.eps_key = "";
  family.keys = {"sinusoidal_pos_embds"};  // which says how the stored rows were made
  family.renamed_keys = {{"dim", "hidden_size"},
                         {"n_layers", "num_hidden_layers"},
                         {"n_heads", "num_attention_heads"},
                         {"hidden_dim", "intermediate_size"},
                         {"dropout", "hidden_dropout_prob"},
                         {"attention_dropout", "attention_probs_dropout_prob"},
                         {"seq_classif_dropout", "classifier_dropout"},
                         {"activation", "hidden_act"}};
  family.read = [](const Keys&, ModelConfig& config) { config.summary_type = "first"; };
  return family;
}

}  // namespace rf
