// ELECTRA (Clark et al. 2020, arXiv 2003.10555): BERT's layers without pooler, below narrower embeddings. The
// discriminator's own head is not computed.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kElectraModules[] = {
    {"classifier.dense", "classifier.dense", ""},
    {"classifier.dense", "sequence_summary.summary", ""},
    {"classifier.out_proj", "classifier.out_proj", ""},
    {"classifier.out_proj", "classifier", ""},  // of multiple choice
    {"cls.predictions.transform.dense", "generator_predictions.dense", ""},
    {"cls.predictions.transform.LayerNorm", "generator_predictions.LayerNorm", ""},
    {"cls.predictions.decoder", "generator_lm_head", ""},
};

// Multiple choice reads one token, through a separate layer.
void read_summary(const Keys& keys, ModelConfig& config) {
  const nlohmann::json names = keys.json().value("architectures", nlohmann::json());
  const bool chooses = names.is_array() && !names.empty() && names[0] == "ElectraForMultipleChoice";
  config.summary_type = "first";
  const std::string type = keys.text("summary_type"), activation = keys.text("summary_activation");
  if (!chooses) return;
  if (type != "first") fail(keys.file(), "summary_type must be first, got {}", shown(nlohmann::json(type)));
  if (activation_of_name(activation) != Activation::kGelu)
    fail(keys.file(), "summary_activation must be gelu, got {}", shown(nlohmann::json(activation)));
  if (!keys.boolean("summary_use_proj", true)) fail(keys.file(), "summary_use_proj must be true, got false");
  if (keys.boolean("summary_proj_to_labels", false) && config.num_labels != config.hidden_size)
    fail(keys.file(), "summary_proj_to_labels must be false, got true");
}

}  // namespace

ModelFamily electra() {
  ModelFamily family = like_bert("electra", "Electra", "electra.", kElectraModules);
  family.layers_of_heads = {.sequence = HeadSpec::Before::kDense,
                            .choice = HeadSpec::Before::kDense,
                            .bare_pooler = false,
                            .activation = Activation::kGelu,
                            .transform_activation = Activation::kGelu,
                            .vocabulary_bias = HeadSpec::VocabularyBias::kOfDecoder,
                            .pretraining_predicts = false};
  family.defaults = R"({"type_vocab_size": 2, "pad_token_id": 0, "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "embedding_size": 128, "summary_type": "first", "summary_activation": "gelu"})";
  family.keys = {"embedding_size", "summary_type", "summary_activation", "summary_use_proj", "summary_proj_to_labels"};
  family.read = read_summary;
  return family;
}

}  // namespace rf
