// UltraBERT (dmis-lab): Llama's blocks without a mask; windows in all layers but every third, with a rotation of their
// own. The authors' files list windows and bases by layer.
#include <algorithm>

#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

namespace {

using nlohmann::json;

// attention_windows: [128, 128, null, ..] and rope_theta: [1e4, 1e4, 256e4, ..].
void rewrite_lists(json& object, const std::string& where) {
  const Keys keys(object, where, "");
  const json* const list = keys.list("attention_windows");
  const json windows = list == nullptr ? json::array() : *list;
  json types = json::array();
  for (const json& window : windows) {
    const bool slides = !window.is_null() && window != 0;
    types.push_back(slides ? "sliding_attention" : "full_attention");
    if (!slides) continue;
    if (object.value("sliding_window", window) != window)
      fail(where, "attention_windows must have one width, that of sliding_window, got {}", shown(windows));
    object["sliding_window"] = window;
  }
  if (list != nullptr) put_spelling(object, "layer_types", types, "attention_windows", where);
  types = object.value("layer_types", json::array());
  const json bases = object.value("rope_theta", json());
  if (bases.is_null() || !types.is_array() || (!bases.is_array() && given(object, "rope_parameters") != nullptr))
    return;
  json rotations = json::object();
  for (size_t i = 0; i < std::min(types.size(), keys.list("rope_theta")->size()); ++i) {
    const json rotation = {{"rope_type", "default"}, {"rope_theta", bases[i]}};
    if (!types[i].is_string()) continue;
    json& found = rotations[types[i].get<std::string>()];
    if (!found.is_null() && found != rotation)
      fail(where, "rope_theta must be one for the layers of a type, got {}", shown(bases));
    found = rotation;
  }
  object.erase("rope_theta");
  put_spelling(object, "rope_parameters", rotations, "rope_theta", where);
}

void read_ultra(const Keys& keys, ModelConfig& config) {
  config.embedding_norm = false;
  read_biases(keys, config);
  config.classifier_pooling = pooling_of(keys, {"cls", "mean"});
  config.heads.transform_width = keys.integer({"prediction_head_size"}, 1, kMaxReportedLength);
  constexpr int64_t kInterval = 3;
  const int64_t window = keys.integer({"sliding_window"}, 1, kMaxReportedLength);
  read_layer_types(
      keys, window, [](int64_t layer) { return (layer + 1) % kInterval != 0; }, config);
}

}  // namespace

ModelFamily ultrabert() {
  static const std::vector<ModuleName> kModules = joined({{"cls.predictions.transform.dense", "head.linear1", ""},
                                                          {"cls.predictions.transform.second", "head.linear2", ""},
                                                          {"cls.predictions.decoder", "cls", ""},
                                                          {"cls.predictions.decoder", "head.decoder", ""},
                                                          {"classifier", "classifier", ""}},
                                                         llama_modules());
  using Before = HeadSpec::Before;
  return {.model_type = "ultrabert",
          .classes = "Ultrabert",
          .prefix = "ultrabert.",
          .old_prefix = "model.",
          .modules = kModules,
          .heads = Family::kBert,
          .block = llama_block(),
          .layers_of_heads = {.sequence = Before::kNothing,
                              .choice = Before::kNothing,
                              .bare_pooler = false,
                              .transform = HeadSpec::Transform::kTwoDense,
                              .transform_bias = false,
                              .transform_activation = Activation::kGeluTanh,
                              .vocabulary_bias = HeadSpec::VocabularyBias::kNone},
          .classless = {Head::kMultipleChoice},
          .token_types = false,
          .any_activation = true,
          .defaults = R"({"pad_token_id": 0, "tie_word_embeddings": false, "sliding_window": 128,
                          "prediction_head_size": 768, "rope_parameters": {
                            "full_attention": {"rope_type": "default", "rope_theta": 2560000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})",
          .keys = {"num_key_value_heads", "head_dim", "attention_bias", "mlp_bias", "classifier_pooling", "auto_map",
                   "sliding_window", "layer_types", "attention_windows", "prediction_head_size"},
          .renamed_keys = {{"attention_dropout", "attention_probs_dropout_prob"}},
          .rewrite = rewrite_lists,
          .read = read_ultra};
}

}  // namespace rf
