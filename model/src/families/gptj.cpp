// GPT-J (Wang and Komatsuzaki, 2021): one layer norm before both parts, which read the layer's input; adjacent pairs of
// rotary_dim elements; biases of the feed-forward network and of the vocabulary. GPT-2 (Radford et al. 2019): trained
// positions, both norms, one matrix of queries, keys and values, and matrices that are stored as [in, out]; StarCoder
// (arXiv 2305.06161), "gpt_bigcode", as [out, in], with one key for all heads. GPT-Neo (EleutherAI, 2021): scores
// without a scale, and windows in every second layer.
#include <algorithm>
#include <iterator>

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

// [[["global", "local"], 12]] repeats these layers 12 times. attention_layers, which files also have, takes precedence.
void read_attention_types(const Keys& keys, ModelConfig& config) {
  const int64_t window = extent(keys, "window_size");
  const auto spec_of = [&](const nlohmann::json& type) {
    return LayerSpec{.window = type == "local" ? window : 0, .rotation = -1};
  };
  const auto is_type = [](const nlohmann::json& type) { return type == "global" || type == "local"; };
  if (const nlohmann::json* const listed = keys.list("attention_layers"); listed != nullptr) {
    if (std::ssize(*listed) != config.num_hidden_layers || !std::ranges::all_of(*listed, is_type)) {
      fail(keys.file(), "attention_layers must be {} of global and local, got {}", config.num_hidden_layers,
           shown(*listed));
    }
    std::ranges::transform(*listed, std::back_inserter(config.layers), spec_of);
    return;
  }
  const nlohmann::json& types = keys.json()["attention_types"];
  const auto refuse = [&] {
    fail(keys.file(), "attention_types must be lists of global and local with how often, of {} layers, got {}",
         config.num_hidden_layers, shown(types));
  };
  for (const nlohmann::json& item : types) {
    const bool is_pair = item.is_array() && item.size() == 2 && item[0].is_array() && item[1].is_number_integer();
    if (!is_pair || item[1] < 0 || item[1] > config.num_hidden_layers) refuse();
    for (int64_t i = 0; i < item[1].get<int64_t>(); ++i) {
      for (const nlohmann::json& type : item[0]) {
        if (!is_type(type) || std::ssize(config.layers) == config.num_hidden_layers) refuse();
        config.layers.push_back(spec_of(type));
      }
    }
  }
  if (std::ssize(config.layers) != config.num_hidden_layers) refuse();
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

ModelFamily gpt_bigcode() {
  ModelFamily family = gpt2();
  family.model_type = "gpt_bigcode";
  family.gguf = "";
  family.classes = "GPTBigCode";
  family.block.transposed = false;
  family.keys = {"scale_attn_weights", "multi_query", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                 "num_key_value_heads"};
  family.off_keys = {"add_cross_attention", "head_dim"};
  family.rewrite = [](nlohmann::json& object, const std::string& where) {
    rewrite_gpt(object, where);
    const nlohmann::json heads = object.value("num_attention_heads", nlohmann::json());
    object["num_key_value_heads"] = Keys(object, where, "").boolean("multi_query", true) ? nlohmann::json(1) : heads;
  };
  family.read = [](const Keys& keys, ModelConfig& config) {
    if (!keys.boolean("multi_query", true)) config.block.fused_qkv = BlockSpec::Fused::kHeads;
  };
  return family;
}

ModelFamily gpt_neo() {
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer.{}.attention.self.query", "h.{}.attn.attention.q_proj", ""},
              {"encoder.layer.{}.attention.self.key", "h.{}.attn.attention.k_proj", ""},
              {"encoder.layer.{}.attention.self.value", "h.{}.attn.attention.v_proj", ""},
              {"encoder.layer.{}.attention.output.dense", "h.{}.attn.attention.out_proj", ""},
              {"encoder.layer.{}.intermediate.dense", "h.{}.mlp.c_fc", ""},
              {"encoder.layer.{}.output.dense", "h.{}.mlp.c_proj", ""}},
             kGptModules);
  ModelFamily family = gpt2();
  family.model_type = "gpt_neo";
  family.gguf = "";
  family.classes = "GPTNeo";
  family.modules = kModules;
  family.block = {.pre_norm = true, .attention_scale = 1, .qkv_bias = false};
  family.defaults = R"({"max_position_embeddings": 2048, "tie_word_embeddings": true, "eos_token_id": 50256,
                        "attention_types": [[["global", "local"], 12]], "window_size": 256})";
  family.keys = {"attention_types", "attention_layers", "window_size"};
  family.off_keys = {"num_key_value_heads", "head_dim"};
  family.renamed_keys = {{"num_layers", "num_hidden_layers"},
                         {"num_heads", "num_attention_heads"},
                         {"layer_norm_epsilon", "layer_norm_eps"},
                         {"activation_function", "hidden_act"}};
  family.rewrite = [](nlohmann::json& object, const std::string&) {
    put_inner_width(object);
    if (given(object, "attention_types") == nullptr) object.erase("attention_types");
  };
  family.read = read_attention_types;
  return family;
}

}  // namespace rf
