// Nomic BERT (Nussbaum et al. 2024, arXiv 2402.01613): BERT's embeddings and heads around layers with rotation, a gated
// feed-forward network and no biases.
#include "family.h"

namespace rf {

namespace {

constexpr ModuleName kNomicModules[] = {
    {"embeddings.word_embeddings", "embeddings.word_embeddings", "token_embd"},
    {"embeddings.token_type_embeddings", "embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "emb_ln", "token_embd_norm"},
    {"encoder.layer.{}.attention.self.query_key_value", "encoder.layers.{}.attn.Wqkv", "blk.{}.attn_qkv"},
    {"encoder.layer.{}.attention.output.dense", "encoder.layers.{}.attn.out_proj", "blk.{}.attn_output"},
    {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layers.{}.norm1", "blk.{}.attn_output_norm"},
    {"encoder.layer.{}.intermediate.gate", "encoder.layers.{}.mlp.fc12", "blk.{}.ffn_gate"},
    {"encoder.layer.{}.intermediate.dense", "encoder.layers.{}.mlp.fc11", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "encoder.layers.{}.mlp.fc2", "blk.{}.ffn_down"},
    {"encoder.layer.{}.output.LayerNorm", "encoder.layers.{}.norm2", "blk.{}.layer_output_norm"},
    {"pooler.dense", "pooler.dense", ""},
    {"cls.predictions.transform.LayerNorm", "cls.predictions.transform.layer_norm", ""},
};

}  // namespace

ModelFamily nomic_bert() {
  return {.model_type = "nomic_bert",
          .classes = "NomicBert",
          .prefix = "nomic_bert.",
          .modules = kNomicModules,
          .heads = Family::kBert,
          .block = {.gated = true,
                    .qkv_bias = false,
                    .output_bias = false,
                    .mlp_bias = false,
                    .fused_qkv = BlockSpec::Fused::kParts},
          .layers_of_heads = {.bare_pooler = false},
          .has_module = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .defaults = R"({"type_vocab_size": 2, "pad_token_id": 0})",
          .keys = {"head_dim"}};
}

}  // namespace rf
