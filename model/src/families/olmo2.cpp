// OLMo 2 (arXiv 2501.00656), OLMo 3 (arXiv 2512.13961) and EXAONE 4 (arXiv 2507.11407): Llama's blocks with a norm of
// each part's result instead of its input. OLMo 2 and 3 norm all queries of a token together, and all keys; EXAONE 4
// norms each, and where layers have windows, the others do not rotate. OLMo (arXiv 2402.00838): Llama's blocks with
// layer norms without weights.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

BlockSpec normed_after() {
  BlockSpec block = llama_block();
  block.input_norm = false;
  block.post_norm = true;
  return block;
}

std::span<const ModuleName> modules_normed_after() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.output.post_norm", "layers.{}.post_attention_layernorm",
               "blk.{}.post_attention_norm"},
              {"encoder.layer.{}.output.post_norm", "layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm"}},
             llama_modules());
  return kModules;
}

}  // namespace

ModelFamily olmo2() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "olmo2";
  family.classes = "Olmo2";
  family.modules = modules_normed_after();
  family.block = normed_after();
  family.block.whole_query_key_norm = true;
  family.eps = 1e-5;
  family.defaults = R"({"eos_token_id": 50279})";
  family.keys = {"attention_bias"};
  family.read = [](const Keys& keys, ModelConfig& config) { read_attention_bias(keys, config); };
  return family;
}

ModelFamily olmo() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "olmo";
  family.classes = "Olmo";
  family.block.norm = NormKind::kLayer;
  family.block.norm_weight = false;
  family.eps_key = "";
  family.eps = 1e-5;
  family.defaults = R"({"eos_token_id": 50279})";
  family.keys = {"attention_bias"};
  family.off_keys = {"clip_qkv"};
  family.read = [](const Keys& keys, ModelConfig& config) { read_attention_bias(keys, config); };
  return family;
}

ModelFamily olmo3() {
  ModelFamily family = olmo2();
  family.model_type = "olmo3";
  family.gguf = "";
  family.classes = "Olmo3";
  family.windows = Windows::kPattern;
  family.defaults = R"({"eos_token_id": 50279, "sliding_window": 4096, "sliding_window_pattern": 4})";
  // Versions 4 and 5 of transformers differ: in 5, rope_theta is not the base of layers with windows.
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    const nlohmann::json* const base = given(object, "rope_theta");
    if (given(object, "rope_parameters") == nullptr && base != nullptr && *base != 500000)
      fail(where, "rope_theta of an olmo3 must be 500000, or inside rope_parameters, got {}", shown(*base));
  };
  return family;
}

ModelFamily exaone4() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "exaone4";
  family.classes = "Exaone4";
  family.modules = modules_normed_after();
  family.block = normed_after();
  family.block.query_key_norm = true;
  family.eps = 1e-5;
  family.windows = Windows::kPattern;
  family.defaults = R"({"num_key_value_heads": 32, "sliding_window": 4096, "sliding_window_pattern": 4,
                        "eos_token_id": 2})";
  family.keys = {};
  // "LLLG" names the layers of a period.
  family.rewrite = [](nlohmann::json& object, const std::string&) {
    const nlohmann::json pattern = object.value("sliding_window_pattern", nlohmann::json());
    if (pattern.is_string()) object["sliding_window_pattern"] = pattern.get<std::string>().size();
    if (pattern == 0) object["sliding_window_pattern"] = nullptr;
  };
  family.read = [](const Keys&, ModelConfig&) {};
  return family;
}

}  // namespace rf
