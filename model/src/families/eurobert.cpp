// EuroBERT (Boizard et al. 2025, arXiv 2503.05500): Llama's blocks without a mask; classification reads the first
// token, the mean of tokens, or the mean of the logits of all tokens ("late").
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

void read_euro(const Keys& keys, ModelConfig& config) {
  config.embedding_norm = false;
  read_biases(keys, config);
  using Bias = HeadSpec::VocabularyBias;
  config.heads.vocabulary_bias = config.block.mlp_bias ? Bias::kOfDecoder : Bias::kNone;
  const std::string pooling = pooling_of(keys, {"late", "bos", "mean"});
  config.classifier_pooling = pooling == "bos" ? "cls" : pooling;
}

}  // namespace

ModelFamily eurobert() {
  static const std::vector<ModuleName> kModules = joined({{"cls.predictions.decoder", "lm_head", ""},
                                                          {"classifier.dense", "dense", ""},
                                                          {"classifier.out_proj", "classifier", ""},
                                                          {"classifier", "classifier", ""}},
                                                         llama_modules());
  return {
      .model_type = "eurobert",
      .classes = "EuroBert",
      .prefix = "model.",
      .modules = kModules,
      .heads = Family::kBert,
      .block = llama_block(),
      .layers_of_heads = {.sequence = HeadSpec::Before::kDense,
                          .bare_pooler = false,
                          .activation = Activation::kGelu,
                          .drops = HeadSpec::Drops::kNone,
                          .transform = HeadSpec::Transform::kNone},
      .classless = {Head::kQuestionAnswering, Head::kMultipleChoice},
      .token_types = false,
      .any_activation = true,
      .eps = 1e-5,
      .defaults = R"({"pad_token_id": 128001, "tie_word_embeddings": false})",
      .keys = {"num_key_value_heads", "head_dim", "attention_bias", "mlp_bias", "classifier_pooling", "auto_map"},
      .renamed_keys = {{"clf_pooling", "classifier_pooling"}, {"attention_dropout", "attention_probs_dropout_prob"}},
      .read = read_euro};
}

}  // namespace rf
