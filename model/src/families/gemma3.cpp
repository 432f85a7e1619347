// The text model of Gemma 3 (arXiv 2503.19786) and EmbeddingGemma (arXiv 2509.20354): RMS norms of 1 + weight before
// and after each part of a layer, embeddings times the root of their width, an RMS norm of each query and key, and
// windows in all layers but every sixth. use_bidirectional_attention halves the window, which then has two sides.
#include <cmath>

#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily gemma3() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.output.post_norm", "layers.{}.post_attention_layernorm",
               "blk.{}.post_attention_norm"},
              {"encoder.layer.{}.output.LayerNorm", "layers.{}.pre_feedforward_layernorm", "blk.{}.ffn_norm"},
              {"encoder.layer.{}.output.post_norm", "layers.{}.post_feedforward_layernorm", "blk.{}.post_ffw_norm"}},
             llama_modules());
  BlockSpec block = llama_block();
  block.query_key_norm = block.norm_plus_one = block.post_norm = true;
  return {.model_type = "gemma3_text",
          .gguf = "gemma3",
          .classes = "Gemma3",
          .other_classes = "Gemma3Text",
          .prefix = "model.",
          .modules = kModules,
          .block = block,
          .layers_of_heads = kDecoderHeads,
          .activation = Activation::kGeluTanh,
          .any_activation = true,
          .activation_key = "hidden_activation",
          .windows = Windows::kPattern,
          .defaults = R"({"num_key_value_heads": 4, "sliding_window": 4096, "tie_word_embeddings": true,
                          "query_pre_attn_scalar": 256, "eos_token_id": 1})",
          .keys = {"attention_bias", "query_pre_attn_scalar", "rope_local_base_freq", "use_bidirectional_attention"},
          .read = [](const Keys& keys, ModelConfig& config) {
            read_attention_bias(keys, config);
            config.block.attention_scale = 1 / std::sqrt(keys.number("query_pre_attn_scalar", 256, kMultiplierRange));
            config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
            if (!keys.boolean("use_bidirectional_attention", false)) return;
            if (!config.is_decoder)
              fail(keys.file(), "is_causal must be absent or true with use_bidirectional_attention, got false");
            config.is_decoder = false;
          }};
}

}  // namespace rf
