// GPT-J (Wang and Komatsuzaki, 2021): one layer norm before both parts, which read the layer's input; adjacent pairs of
// rotary_dim elements; biases of the feed-forward network and of the vocabulary. GPT-2 (Radford et al. 2019): trained
// positions, both norms, one matrix of queries, keys and values, and matrices that are stored as [in, out].
#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

constexpr ModuleName kGptModules[] = {
    {"embeddings.word_embeddings", "wte", "token_embd"},
    {"embeddings.position_embeddings", "wpe", "position_embd"},
    {"encoder.layer.{}.attention.output.LayerNorm", "h.{}.ln_1", "blk.{}.attn_norm"},
    {"encoder.layer.{}.attention.self.query", "h.{}.attn.q_proj", "blk.{}.attn_q"},
    {"encoder.layer.{}.attention.self.key", "h.{}.attn.k_proj", "blk.{}.attn_k"},
    {"encoder.layer.{}.attention.self.value", "h.{}.attn.v_proj", "blk.{}.attn_v"},
    {"encoder.layer.{}.attention.output.dense", "h.{}.attn.out_proj", "blk.{}.attn_output"},
    {"encoder.layer.{}.output.LayerNorm", "h.{}.ln_2", "blk.{}.ffn_norm"},
    {"encoder.layer.{}.intermediate.dense", "h.{}.mlp.fc_in", "blk.{}.ffn_up"},
    {"encoder.layer.{}.output.dense", "h.{}.mlp.fc_out", "blk.{}.ffn_down"},
    {"encoder.final_norm", "ln_f", "output_norm"},
    {"lm_head", "lm_head", "output"},
    {"classifier", "score", ""},
};

void rewrite_gpt(nlohmann::json& object, const std::string& where) {
  const nlohmann::json* const scaled = given(object, "scale_attn_weights");
  if (scaled != nullptr && *scaled != true) fail(where, "scale_attn_weights must be true, got {}", shown(*scaled));
  put_inner_width(object);
}

}  // namespace

ModelFamily gptj() {
  HeadSpec heads = kDecoderHeads;
  heads.vocabulary_bias = HeadSpec::VocabularyBias::kOfDecoder;
  return {.model_type = "gptj",
          .classes = "GPTJ",
          .prefix = "transformer.",
          .modules = kGptModules,
          .block = {.pre_norm = true, .parallel = true, .shared_norm = true, .qkv_bias = false, .output_bias = false},
          .layers_of_heads = heads,
          .activation = Activation::kGeluTanh,
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-5,
          .defaults = R"({"max_position_embeddings": 2048, "eos_token_id": 50256})",
          .keys = {"rotary_dim", "rotary", "scale_attn_weights"},
          .renamed_keys = {{"n_embd", "hidden_size"},
                           {"n_layer", "num_hidden_layers"},
                           {"n_head", "num_attention_heads"},
                           {"n_inner", "intermediate_size"},
                           {"n_positions", "max_position_embeddings"},
                           {"layer_norm_epsilon", "layer_norm_eps"},
                           {"activation_function", "hidden_act"}},
          .off_keys = {"num_key_value_heads", "head_dim"},
          .rewrite = rewrite_gpt};
}

ModelFamily gpt2() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.self.query_key_value", "h.{}.attn.c_attn", "blk.{}.attn_qkv"},
              {"encoder.layer.{}.attention.output.dense", "h.{}.attn.c_proj", "blk.{}.attn_output"},
              {"encoder.layer.{}.intermediate.dense", "h.{}.mlp.c_fc", "blk.{}.ffn_up"},
              {"encoder.layer.{}.output.dense", "h.{}.mlp.c_proj", "blk.{}.ffn_down"}},
             kGptModules);
  ModelFamily family = gptj();
  family.model_type = family.gguf = "gpt2";
  family.classes = "GPT2";
  family.modules = kModules;
  family.block = {.pre_norm = true, .fused_qkv = BlockSpec::Fused::kParts, .transposed = true};
  family.layers_of_heads = kDecoderHeads;
  family.rotates = false;
  family.positions = {.learned = true};
  family.defaults = R"({"max_position_embeddings": 1024, "tie_word_embeddings": true, "eos_token_id": 50256})";
  family.keys = {"scale_attn_weights", "reorder_and_upcast_attn"};
  family.off_keys = {"scale_attn_by_inverse_layer_idx", "add_cross_attention", "num_key_value_heads", "head_dim"};
  return family;
}

}  // namespace rf
