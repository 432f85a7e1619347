// GPT-NeoX (Black et al. 2022, arXiv 2204.06745) and Pythia: layer norms with biases before each part of a layer. Both
// parts read the layer's input; without use_parallel_residual, they run in sequence.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

namespace {

constexpr ModuleName kNeoxModules[] = {
    {"embeddings.word_embeddings", "embed_in", "token_embd"},
    {"encoder.layer.{}.attention.output.LayerNorm", "layers.{}.input_layernorm", "blk.{}.attn_norm"},
    {"encoder.layer.{}.attention.self.query_key_value", "layers.{}.attention.query_key_value", "blk.{}.attn_qkv"},
    {"encoder.layer.{}.attention.output.dense", "layers.{}.attention.dense", "blk.{}.attn_output"},
    {"encoder.layer.{}.output.LayerNorm", "layers.{}.post_attention_layernorm", "blk.{}.ffn_norm"},
    {"encoder.layer.{}.intermediate.dense", "layers.{}.mlp.dense_h_to_4h", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "layers.{}.mlp.dense_4h_to_h", "blk.{}.ffn_down"},
    {"encoder.final_norm", "final_layer_norm", "output_norm"},
    {"lm_head", "embed_out", "output"},
    {"lm_head", "lm_head", "output"},
    {"classifier", "score", ""},
};

}  // namespace

ModelFamily gpt_neox() {
  return {.model_type = "gpt_neox",
          .gguf = "gptneox",
          .classes = "GPTNeoX",
          .prefix = "gpt_neox.",
          .modules = kNeoxModules,
          .block = {.pre_norm = true, .parallel = true, .fused_qkv = BlockSpec::Fused::kHeads},
          .layers_of_heads = kDecoderHeads,
          .activation = Activation::kGelu,
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-5,
          .defaults = R"({"eos_token_id": 2})",
          .keys = {"attention_bias", "use_parallel_residual", "rotary_pct", "rotary_emb_base"},
          .read = [](const Keys& keys, ModelConfig& config) {
            read_attention_bias(keys, config, true);
            config.block.parallel = keys.boolean("use_parallel_residual", true);
          }};
}

}  // namespace rf
