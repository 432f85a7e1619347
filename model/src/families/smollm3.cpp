// SmolLM3 (Hugging Face, 2025): Llama's blocks; every fourth layer does not rotate.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

ModelFamily smollm3() {
  ModelFamily family = llama();
  family.model_type = family.gguf = "smollm3";
  family.classes = "SmolLM3";
  family.defaults = R"({"num_key_value_heads": 4, "tie_word_embeddings": true, "eos_token_id": 128001})";
  family.keys.insert(family.keys.end(), {"no_rope_layers", "no_rope_layer_interval", "layer_types", "sliding_window"});
  family.off_keys = {"use_sliding_window"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    read_biases(keys, config);
    for (const nlohmann::json& type : keys.json().value("layer_types", nlohmann::json::array())) {
      if (type != "full_attention")
        fail(keys.file(), "layer_types of a SmolLM3 must be full_attention, got {}", shown(type));
    }
  };
  return family;
}

}  // namespace rf
