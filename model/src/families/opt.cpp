// OPT (Zhang et al. 2022, arXiv 2205.01068): layer norms with biases before each part, ReLU, trained positions whose
// table begins two rows earlier. OPT-350M, which has norms after each part and narrower embeddings, is refused.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr int64_t kFirstRow = 2;

void rewrite_opt(nlohmann::json& object, const std::string& where) {
  const nlohmann::json* const before = given(object, "do_layer_norm_before");
  if (before != nullptr && *before != true) fail(where, "do_layer_norm_before must be true, got {}", shown(*before));
  const nlohmann::json* const width = given(object, "word_embed_proj_dim");
  if (width != nullptr && *width != object.value("hidden_size", nlohmann::json()))
    fail(where, "word_embed_proj_dim must be hidden_size, got {}", shown(*width));
  const int64_t positions = Keys(object, where, "").integer({"max_position_embeddings"}, 1, kMaxExtent);
  object["max_position_embeddings"] = (positions == 0 ? 2048 : positions) + kFirstRow;  // rows of the table
}

}  // namespace

ModelFamily opt() {
  static const std::vector<ModuleName> kModules =
      joined({{"embeddings.position_embeddings", "embed_positions", ""},
              {"encoder.layer.{}.attention.output.LayerNorm", "layers.{}.self_attn_layer_norm", ""},
              {"encoder.layer.{}.attention.output.dense", "layers.{}.self_attn.out_proj", ""},
              {"encoder.layer.{}.output.LayerNorm", "layers.{}.final_layer_norm", ""},
              {"encoder.layer.{}.intermediate.dense", "layers.{}.fc1", ""},
              {"encoder.layer.{}.output.dense", "layers.{}.fc2", ""},
              {"encoder.final_norm", "final_layer_norm", ""}},
             llama_modules());
  ModelFamily family = llama();
  family.model_type = "opt";
  family.gguf = "";
  family.classes = "OPT";
  family.prefix = "model.decoder.";
  family.old_prefix = "decoder.";
  family.modules = kModules;
  family.block = {.pre_norm = true};
  family.rotates = false;
  family.positions = {.learned = true, .first_row = kFirstRow};
  family.activation = Activation::kRelu;
  family.eps_key = "";
  family.eps = 1e-5;
  family.defaults = R"({"tie_word_embeddings": true, "eos_token_id": 2})";
  family.keys = {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine", "layerdrop",
                 "word_embed_proj_dim"};
  family.renamed_keys = {{"ffn_dim", "intermediate_size"}, {"activation_function", "hidden_act"}};
  family.off_keys = {"_remove_final_layer_norm", "num_key_value_heads", "head_dim"};
  family.rewrite = rewrite_opt;
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_all_biases(keys, "enable_bias", true, config);
    config.block.norm_weight = config.block.norm_bias = keys.boolean("layer_norm_elementwise_affine", true);
  };
  return family;
}

}  // namespace rf
