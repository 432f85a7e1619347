// Qwen2 (arXiv 2407.10671): Llama's blocks; the projections of queries, keys and values have biases. gte-Qwen2 and
// stella_en_1.5B name their own class, which is Qwen2 with is_causal.
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

void check_own_class(const Keys& keys, ModelConfig&) {
  const nlohmann::json& object = keys.json();
  if (!has_own_class(object, "AutoModel")) return;
  if (!has_own_class(object, "modeling_qwen.Qwen2") || given(object, "is_causal") == nullptr) {
    fail(keys.file(), "auto_map must be absent, or name modeling_qwen.Qwen2Model, with is_causal, got {}",
         shown(object["auto_map"]));
  }
}

}  // namespace

ModelFamily qwen2() {
  BlockSpec block = llama_block();
  block.qkv_bias = true;
  return {.model_type = "qwen2",
          .gguf = "qwen2",
          .classes = "Qwen2",
          .prefix = "model.",
          .modules = llama_modules(),
          .block = block,
          .layers_of_heads = kDecoderHeads,
          .any_activation = true,
          .windows = Windows::kSwitched,
          .defaults = R"({"num_key_value_heads": 32, "sliding_window": 4096})",
          .keys = {"attention_bias", "auto_map"},
          .read = check_own_class};
}

}  // namespace rf
