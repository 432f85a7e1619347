// Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama's blocks, with a window in every layer; Ministral (2024) has
// them in some.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily mistral() {
  return {.model_type = "mistral",
          .classes = "Mistral",
          .prefix = "model.",
          .modules = llama_modules(),
          .block = llama_block(),
          .layers_of_heads = kDecoderHeads,
          .any_activation = true,
          .windows = Windows::kAll,
          .defaults = R"({"eos_token_id": 2, "num_key_value_heads": 8, "sliding_window": 4096})"};
}

ModelFamily ministral() {
  ModelFamily family = mistral();
  family.model_type = "ministral";
  family.classes = "Ministral";
  family.windows = Windows::kPattern;
  // Without layer_types all layers have windows, or none.
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    if (given(object, "layer_types") != nullptr) return;
    const bool slides = !object.contains("sliding_window") || given(object, "sliding_window") != nullptr;
    const int64_t layers = extent(Keys(object, where, ""), "num_hidden_layers", kMaxForeignLayers);
    object["layer_types"] =
        std::vector<std::string>(static_cast<size_t>(layers), slides ? "sliding_attention" : "full_attention");
  };
  return family;
}

}  // namespace rf
