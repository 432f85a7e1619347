// SmolLM3 (Hugging Face, 2025): Llama's blocks; every fourth layer does not rotate, and these may have windows.
#include <algorithm>

#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

// With use_sliding_window, adds layer_types if absent: layers without a rotation get windows, if sliding_window is set.
void write_layer_types(nlohmann::json& object, const std::string& where) {
  const nlohmann::json* const listed = given(object, "layer_types");
  const bool slides = object.value("use_sliding_window", nlohmann::json()) == true;
  if (!slides && listed != nullptr && listed->dump().find("sliding_attention") != std::string::npos) {
    fail(where, "use_sliding_window must be true with layer_types of sliding_attention, got {}",
         shown(object["use_sliding_window"]));
  }
  const Keys keys(object, where, "");
  const auto layers = static_cast<size_t>(extent(keys, "num_hidden_layers", kMaxForeignLayers));
  const nlohmann::json* const rotates = keys.list("no_rope_layers");
  const auto is_switch = [](const nlohmann::json& item) { return item.is_number_integer(); };
  if (rotates != nullptr && (rotates->size() < layers || !std::ranges::all_of(*rotates, is_switch)))
    fail(where, "no_rope_layers must have a 0 or 1 for each of {} layers, got {}", layers, shown(*rotates));
  if (!slides || listed != nullptr) return;
  const int64_t interval = given(object, "no_rope_layer_interval") == nullptr
                               ? 4
                               : keys.integer({"no_rope_layer_interval"}, 1, kMaxForeignLayers);
  object["layer_types"] = nlohmann::json::array();
  for (size_t i = 0; i < layers; ++i) {
    const bool rotated = rotates == nullptr ? (static_cast<int64_t>(i) + 1) % interval != 0 : (*rotates)[i] != 0;
    const bool has_window = !rotated && given(object, "sliding_window") != nullptr;
    object["layer_types"].push_back(has_window ? "sliding_attention" : "full_attention");
  }
}

}  // namespace

ModelFamily smollm3() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "smollm3";
  family.classes = "SmolLM3";
  family.defaults = R"({"num_key_value_heads": 4, "tie_word_embeddings": true, "eos_token_id": 128001})";
  family.windows = Windows::kSwitched;
  family.keys.insert(family.keys.end(), {"no_rope_layers", "no_rope_layer_interval", "max_window_layers"});
  family.rewrite = write_layer_types;
  return family;
}

}  // namespace rf
