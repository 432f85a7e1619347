// Mistral (Jiang et al. 2023, arXiv 2310.06825): Llama's blocks, with a window in every layer.
#include "family.h"

namespace rf {

ModelFamily mistral() {
  return {.model_type = "mistral",
          .classes = "Mistral",
          .prefix = "model.",
          .modules = llama_modules(),
          .block = llama_block(),
          .layers_of_heads = kDecoderHeads,
          .windows = Windows::kAll,
          .defaults = R"({"eos_token_id": 2, "num_key_value_heads": 8, "sliding_window": 4096})"};
}

}  // namespace rf
