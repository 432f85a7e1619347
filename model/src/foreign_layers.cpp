// Windows of the layers of decoders (families/family.h), and which layer has which rotation.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "families/family.h"
#include "rf/io/error.h"
#include "rotary_report/parts.h"

namespace rf {

namespace {

using nlohmann::json;

constexpr const char* kSliding = "sliding_attention";
constexpr int64_t kMaxWindow = int64_t{1} << 40;

// layer_types, one of two for each layer; nullptr: absent.
const json* layer_types(const Keys& keys, int64_t layers) {
  const json* const types = keys.list("layer_types");
  const auto known = [](const json& type) { return type == "full_attention" || type == kSliding; };
  if (types != nullptr && (std::ssize(*types) != layers || !std::ranges::all_of(*types, known))) {
    fail(keys.file(), "layer_types must be full_attention or sliding_attention for each of the {} layers, got {}",
         layers, shown(*types));
  }
  return types;
}

// Whether each layer is one of sliding_attention.
std::vector<bool> sliding_layers(const json& object, const Keys& keys, Windows windows, int64_t layers) {
  std::vector<bool> sliding(static_cast<size_t>(layers), windows == Windows::kAll);
  if (windows == Windows::kNone || windows == Windows::kAll) return sliding;
  const json* const types = layer_types(keys, layers);
  if (windows == Windows::kSwitched && !keys.boolean("use_sliding_window", false)) return sliding;
  constexpr int64_t kFullLayers = 28, kPattern = 6;
  const auto count = [&](const char* name, int64_t fallback, int64_t least) {
    return given(object, name) == nullptr ? fallback : keys.integer({name}, least, kMaxReportedLayers);
  };
  const int64_t full = count("max_window_layers", kFullLayers, 0),
                pattern = count("sliding_window_pattern", kPattern, 1);
  for (int64_t i = 0; i < layers; ++i) {
    const bool of_class = windows == Windows::kPattern ? (i + 1) % pattern != 0 : i >= full;
    sliding[static_cast<size_t>(i)] = types != nullptr ? (*types)[static_cast<size_t>(i)] == kSliding : of_class;
  }
  return sliding;
}

// As LayerSpec has it; 0: none. Gemma 3 halves it where use_bidirectional_attention is true.
int64_t window_of(const Keys& keys, bool halved) {
  const int64_t window = keys.integer({"sliding_window"}, halved ? 2 : 1, kMaxWindow);
  return halved ? window / 2 : window;
}

}  // namespace

std::span<const std::string_view> window_keys(Windows windows) {
  static constexpr std::string_view kKeys[] = {"sliding_window", "use_sliding_window", "layer_types"};
  static constexpr std::string_view kPatternKeys[] = {"sliding_window", "layer_types", "sliding_window_pattern",
                                                      "_sliding_window_pattern"};
  switch (windows) {
    case Windows::kNone: return {};
    case Windows::kAll: return std::span(kKeys).first(2);
    case Windows::kSwitched: return kKeys;
    case Windows::kPattern: return kPatternKeys;
  }
  return {};
}

void read_layer_types(const Keys& keys, int64_t window, const std::function<bool(int64_t)>& slides,
                      ModelConfig& config) {
  const json* const types = layer_types(keys, config.num_hidden_layers);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const bool local = types == nullptr ? slides(i) : (*types)[static_cast<size_t>(i)] == kSliding;
    config.layers.push_back({.window = local ? window : 0, .rotation = local ? 1 : 0});
  }
}

void set_linear_positions(const Keys& keys, ModelConfig& config) {
  if (!config.is_decoder) fail(keys.file(), "is_causal must be absent or true with ALiBi, got false");
  config.positions.relative = PositionSpec::Relative::kLinear;
}

Activation activation_in(const Keys& keys, const char* key, Activation fallback) {
  const std::string text = keys.text(key);
  if (text.empty()) return fallback;
  const std::optional<Activation> named = activation_of_name(text);
  if (!named) fail(keys.file(), "{} must be {}, got {}", key, kActivationNames, shown(json(text)));
  return *named;
}

std::string pooling_of(const Keys& keys, std::initializer_list<std::string_view> names) {
  const std::string pooling = keys.text("classifier_pooling");
  if (pooling.empty()) return std::string(*names.begin());
  if (std::ranges::find(names, pooling) == names.end())
    fail(keys.file(), "classifier_pooling must be {}, got {}", fmt::join(names, " or "), shown(json(pooling)));
  return pooling;
}

void read_windows(const json& object, const Keys& keys, const ModelFamily& family, ModelConfig& config) {
  const std::vector<bool> sliding = sliding_layers(object, keys, family.windows, config.num_hidden_layers);
  const bool pattern = family.windows == Windows::kPattern;
  const bool halved = pattern && keys.boolean("use_bidirectional_attention", false);
  const int64_t window = window_of(keys, halved);
  const bool any = std::ranges::find(sliding, true) != sliding.end();
  const bool by_types = family.windows == Windows::kSwitched && keys.list("layer_types") != nullptr;
  if (any && window == 0 && (pattern || by_types))
    fail(keys.file(), "sliding_window must be given for layers of sliding_attention, got null");
  const bool differ = any && config.rotations.size() > 1;
  if (!differ) config.rotations.resize(1);  // the first is that of full_attention
  if (!any || (window == 0 && !differ)) return;
  for (const bool slides : sliding)
    config.layers.push_back({.window = slides ? window : 0, .rotation = slides && differ ? 1 : 0});
}

}  // namespace rf
