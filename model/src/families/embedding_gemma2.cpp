// The text model of EmbeddingGemma 2: an encoder of Gemma 3's layers, whose norms multiply by their weight alone, with
// a norm of values, an input of each layer's own and a factor of its result. Layers without a window have wider heads.
// The last hidden states are projected to the width of the embedding.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

using nlohmann::json;

constexpr const char* kFull = "full_attention";
constexpr const char* kOwnHeads = "per_layer_config";

int64_t integer_or(const Keys& keys, const char* name, int64_t fallback, int64_t most) {
  const int64_t value = keys.integer({name}, 1, most);
  return value == 0 ? fallback : value;
}

// Sets the keys that the class derives from others. The last layer is never windowed, whatever layer_types says.
void derive_layers(json& object, const std::string& where) {
  const Keys keys(object, where, "");
  const int64_t pattern = integer_or(keys, "sliding_window_pattern", 6, kMaxReportedLayers);
  json types = object.value("layer_types", json());
  if (types.is_null()) {
    types = json::array();
    for (int64_t i = 1; i <= keys.integer({"num_hidden_layers"}, 1, kMaxForeignLayers); ++i)
      types.push_back(i % pattern == 0 ? kFull : "sliding_attention");
  }
  if (types.is_array() && !types.empty()) types.back() = kFull;
  if (!object.contains(kOwnHeads)) {
    const json heads = {{"head_dim", integer_or(keys, "global_head_dim", 512, kMaxHeadSize)},
                        {"num_key_value_heads", integer_or(keys, "num_global_key_value_heads", 1, kMaxHeads)}};
    json own = json::object();
    for (size_t i = 0; types.is_array() && i < types.size(); ++i) {
      if (types[i] == kFull) own[fmt::format("{}", i)] = heads;
    }
    object[kOwnHeads] = own;
  }
  object["layer_types"] = types;
}

void read_own_heads(const Keys& keys, ModelConfig& config) {
  const json* const own = keys.object(kOwnHeads);
  if (own == nullptr) return;
  size_t found = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const json* const given = given_to_layer(*own, i);
    if (given == nullptr) continue;
    ++found;
    const bool is_known = given->is_object() && std::ranges::all_of(given->items(), [](const auto& item) {
                            return item.key() == "head_dim" || item.key() == "num_key_value_heads";
                          });
    if (!is_known) {
      fail(keys.file(), "{}.{} must be an object of head_dim and num_key_value_heads, got {}", kOwnHeads, i,
           shown(*given));
    }
    const Keys inside(*given, keys.file(), fmt::format("{}.{}.", kOwnHeads, i));
    LayerSpec& layer = config.layers[i];
    layer.head_dim = inside.integer({"head_dim"}, 1, kMaxHeadSize);
    layer.key_heads = inside.integer({"num_key_value_heads"}, 1, kMaxHeads);
    if (config.num_attention_heads % config.key_heads(static_cast<int64_t>(i)) != 0) {
      fail(keys.file(), "{}.{}.num_key_value_heads must divide num_attention_heads, {}, got {}", kOwnHeads, i,
           config.num_attention_heads, layer.key_heads);
    }
  }
  if (found != own->size())
    fail(keys.file(), "{} must be of layers from 0 to {}, got {}", kOwnHeads, config.layers.size() - 1, shown(*own));
}

void read_embedding_gemma2(const Keys& keys, ModelConfig& config) {
  read_attention_bias(keys, config);
  config.embedding_norm = false;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.block.layer_input_width = extent(keys, "hidden_size_per_layer_input");
  config.output_size = extent(keys, "embedding_dim");
  read_layer_types(keys, extent(keys, "sliding_window", kMaxReportedLength), {}, config);
  read_own_heads(keys, config);
}

}  // namespace

ModelFamily embedding_gemma2() {
  ModelFamily family = gemma3();
  static const std::vector<ModuleName> kModules =
      joined({{"encoder.layer_inputs", "ple.per_layer_model_projection", ""},
              {"encoder.layer_input_norm", "ple.per_layer_projection_norm", ""},
              {"encoder.layer.{}.layer_input.gate", "layers.{}.ple_block.per_layer_input_gate", ""},
              {"encoder.layer.{}.layer_input.down", "layers.{}.ple_block.per_layer_projection", ""},
              {"encoder.layer.{}.layer_input.norm", "layers.{}.ple_block.post_per_layer_input_norm", ""},
              {"encoder.layer.{}.scale", "layers.{}.layer_scalar", ""},
              {"encoder.output_projection", "embedding_projection", ""}},
             family.modules);
  family.model_type = "embedding_gemma2_text";
  family.outer_type = "embedding_gemma2";
  family.gguf = "";
  family.classes = "EmbeddingGemma2Text";
  family.other_classes = "";
  family.prefix = "language_model.";
  family.modules = kModules;
  family.heads = Family::kBert;
  family.block.norm_plus_one = false;
  family.block.value_norm = family.block.layer_scale = true;
  family.block.attention_scale = 1;
  family.layers_of_heads = {.sequence = HeadSpec::Before::kNothing,
                            .choice = HeadSpec::Before::kNothing,
                            .bare_pooler = false,
                            .transform = HeadSpec::Transform::kNone,
                            .vocabulary_bias = HeadSpec::VocabularyBias::kNone};
  family.token_types = false;
  family.any_activation = true;
  family.windows = Windows::kNone;
  family.defaults = R"({"num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "pad_token_id": 0,
                        "hidden_size_per_layer_input": 512, "embedding_dim": 768,
                        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})";
  family.keys = {"num_key_value_heads",
                 "head_dim",
                 "attention_bias",
                 "sliding_window",
                 "sliding_window_pattern",
                 "layer_types",
                 "per_layer_config",
                 "global_head_dim",
                 "num_global_key_value_heads",
                 "hidden_size_per_layer_input",
                 "embedding_dim"};
  family.rewrite = derive_layers;
  family.read = read_embedding_gemma2;
  return family;
}

}  // namespace rf
