// Qwen2 (arXiv 2407.10671): Llama's blocks; the projections of queries, keys and values have biases.
#include "family.h"

namespace rf {

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
          .windows = Windows::kSwitched,
          .defaults = R"({"num_key_value_heads": 32, "sliding_window": 4096})",
          .keys = {"attention_bias"}};
}

}  // namespace rf
