// jina-embeddings-v3 (Sturua et al. 2024, arXiv 2409.10173), without adapters: XLM-RoBERTa's layers and heads with
// rotation in place of learned positions.
#include "family.h"

namespace rf {

ModelFamily jina_embeddings_v3() {
  static const std::vector<ModuleName> kModules =
      joined({{"embeddings.LayerNorm", "emb_ln", ""},
              {"encoder.layer.{}.attention.self.query_key_value", "encoder.layers.{}.mixer.Wqkv", ""},
              {"encoder.layer.{}.attention.output.dense", "encoder.layers.{}.mixer.out_proj", ""},
              {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layers.{}.norm1", ""},
              {"encoder.layer.{}.intermediate.dense", "encoder.layers.{}.mlp.fc1", ""},
              {"encoder.layer.{}.output.dense", "encoder.layers.{}.mlp.fc2", ""},
              {"encoder.layer.{}.output.LayerNorm", "encoder.layers.{}.norm2", ""}},
             roberta_modules());
  return {.model_type = "jina_embeddings_v3",
          .classes = "JinaEmbeddingsV3",
          .prefix = "roberta.",
          .berts_names = true,
          .modules = kModules,
          .heads = Family::kBert,
          .block = {.fused_qkv = BlockSpec::Fused::kParts},
          .layers_of_heads = roberta_heads(),
          .has_module = true,
          .activation = Activation::kGelu,
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-5,
          .defaults = R"({"type_vocab_size": 1, "pad_token_id": 1})"};
}

}  // namespace rf
