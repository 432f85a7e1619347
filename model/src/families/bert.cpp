// BERT (Devlin et al. 2019, arXiv 1810.04805) in GGUF files, which also hold RoBERTa and DistilBERT so: their table of
// positions begins with the first one. Directories of BERT are read by config_json.cpp.
#include <nlohmann/json.hpp>

#include "family.h"

namespace rf {

namespace {

constexpr ModuleName kBertModules[] = {
    {"embeddings.word_embeddings", "embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "embeddings.position_embeddings", "position_embd"},
    {"embeddings.token_type_embeddings", "embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "embeddings.LayerNorm", "token_embd_norm"},
    {"encoder.layer.{}.attention.self.query", "encoder.layer.{}.attention.self.query", "blk.{}.attn_q"},
    {"encoder.layer.{}.attention.self.key", "encoder.layer.{}.attention.self.key", "blk.{}.attn_k"},
    {"encoder.layer.{}.attention.self.value", "encoder.layer.{}.attention.self.value", "blk.{}.attn_v"},
    {"encoder.layer.{}.attention.output.dense", "encoder.layer.{}.attention.output.dense", "blk.{}.attn_output"},
    {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.attention.output.LayerNorm",
     "blk.{}.attn_output_norm"},
    {"encoder.layer.{}.intermediate.dense", "encoder.layer.{}.intermediate.dense", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "encoder.layer.{}.output.dense", "blk.{}.ffn_down"},
    {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.output.LayerNorm", "blk.{}.layer_output_norm"},
};

}  // namespace

ModelFamily bert_of_gguf() {
  ModelFamily family = like_bert("bert_gguf", "Bert", "bert.", kBertModules);
  family.variant_of = "bert";
  family.is_variant = [](const nlohmann::json&) { return false; };
  family.gguf = "bert";
  family.any_activation = false;
  return family;
}

}  // namespace rf
