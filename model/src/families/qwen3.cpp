// Qwen3 (arXiv 2505.09388): Llama's blocks, with an RMS norm of each query and key before the rotation.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily qwen3() {
  BlockSpec block = llama_block();
  block.query_key_norm = true;
  return {.model_type = "qwen3",
          .gguf = "qwen3",
          .classes = "Qwen3",
          .prefix = "model.",
          .modules = llama_modules(),
          .block = block,
          .layers_of_heads = kDecoderHeads,
          .any_activation = true,
          .windows = Windows::kSwitched,
          .defaults = R"({"num_key_value_heads": 32, "sliding_window": 4096})",
          .keys = {"attention_bias"},
          .read = [](const Keys& keys, ModelConfig& config) { read_attention_bias(keys, config); }};
}

}  // namespace rf
