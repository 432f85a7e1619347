// MPNet (Song et al. 2020, arXiv 2004.09297): BERT's layers without token types, learned positions, and T5's bias by
// bucket of the distance. Whatever pad_token_id says, its class takes token 1 for padding.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kMpnetModules[] = {
    {"encoder.layer.{}.attention.self.query", "encoder.layer.{}.attention.attn.q", ""},
    {"encoder.layer.{}.attention.self.key", "encoder.layer.{}.attention.attn.k", ""},
    {"encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.attn.v", ""},
    {"encoder.layer.{}.attention.output.dense", "encoder.layer.{}.attention.attn.o", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.attention.LayerNorm", ""},
    {"cls.predictions.transform.dense", "lm_head.dense", ""},
    {"cls.predictions.transform.LayerNorm", "lm_head.layer_norm", ""},
    {"cls.predictions.decoder", "lm_head.decoder", ""},
    {"cls.predictions", "lm_head", ""},
};

void read_buckets(const Keys& keys, ModelConfig& config) {
  config.positions.rows = keys.integer({"relative_attention_num_buckets"}, 1, int64_t{1} << 16);
  if (config.positions.rows < PositionSpec::kBucketsRead) {
    fail(keys.file(), "relative_attention_num_buckets must be at least {}, got {}", PositionSpec::kBucketsRead,
         config.positions.rows);
  }
}

}  // namespace

ModelFamily mpnet() {
  constexpr int64_t kPadding = 1;
  ModelFamily family = like_bert("mpnet", "MPNet", "mpnet.", kMpnetModules);
  family.layers_of_heads = roberta_heads();
  family.token_types = false;
  family.positions.first_row = kPadding + 1;
  family.positions.padding_id = kPadding;
  family.positions.relative = PositionSpec::Relative::kBuckets;
  family.defaults = R"({"pad_token_id": 1, "max_position_embeddings": 512, "relative_attention_num_buckets": 32,
                        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})";
  family.keys = {"relative_attention_num_buckets"};
  family.read = read_buckets;
  return family;
}

}  // namespace rf
