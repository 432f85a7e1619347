// BERT's and RoBERTa's layers with norms before their parts, and one at the end: Megatron-BERT (Shoeybi et al. 2019,
// arXiv 1909.08053), XLM-RoBERTa-XL (Goyal et al. 2021, arXiv 2105.00572) and RoBERTa-PreLayerNorm (fairseq,
// arXiv 1904.01038).
#include "family.h"

namespace rf {

ModelFamily roberta();

namespace {

ModelFamily norm_first(ModelFamily family, std::string_view model_type, std::string_view classes,
                       std::span<const ModuleName> modules) {
  family.model_type = model_type;
  family.classes = classes;
  family.modules = modules;
  family.block.pre_norm = true;
  return family;
}

void without_first_norm(const Keys&, ModelConfig& config) {
  config.embedding_norm = false;
  config.final_norm = true;
}

}  // namespace

ModelFamily megatron_bert() {
  static constexpr ModuleName kModules[] = {
      {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.attention.ln", ""},
      {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.ln", ""},
      {"encoder.final_norm", "encoder.ln", ""},
  };
  ModelFamily family = norm_first(like_bert("", "", "bert.", {}), "megatron-bert", "MegatronBert", kModules);
  family.read = without_first_norm;
  return family;
}

ModelFamily xlm_roberta_xl() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.attention.self_attn_layer_norm", ""},
              {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.LayerNorm", ""},
              {"encoder.final_norm", "encoder.LayerNorm", ""}},
             roberta_modules());
  ModelFamily family = norm_first(roberta(), "xlm-roberta-xl", "XLMRobertaXL", kModules);
  family.eps = 1e-5;
  family.defaults = R"({"type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 514,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})";
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_padding_row(keys, config);
    without_first_norm(keys, config);
  };
  return family;
}

ModelFamily roberta_prelayernorm() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.output.LayerNorm", "encoder.layer.{}.attention.LayerNorm", ""},
              {"encoder.layer.{}.output.LayerNorm", "encoder.layer.{}.intermediate.LayerNorm", ""},
              {"encoder.final_norm", "LayerNorm", ""}},
             roberta_modules());
  ModelFamily family = norm_first(roberta(), "roberta-prelayernorm", "RobertaPreLayerNorm", kModules);
  family.prefix = "roberta_prelayernorm.";
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_padding_row(keys, config);
    config.final_norm = true;
  };
  return family;
}

}  // namespace rf
