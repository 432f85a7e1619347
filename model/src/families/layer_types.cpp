// Layers with and without windows, as layer_types names them (family.h).
#include <algorithm>

#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

void read_layer_types(const Keys& keys, int64_t window, const std::function<bool(int64_t)>& slides,
                      ModelConfig& config) {
  constexpr const char* kSliding = "sliding_attention";
  const nlohmann::json* const types = keys.list("layer_types");
  const auto known = [](const nlohmann::json& type) { return type == "full_attention" || type == kSliding; };
  if (types != nullptr &&
      (std::ssize(*types) != config.num_hidden_layers || !std::ranges::all_of(*types, known))) {
    fail(keys.file(), "layer_types must be full_attention or sliding_attention for each of the {} layers, got {}",
         config.num_hidden_layers, shown(*types));
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const bool local = types == nullptr ? slides(i) : (*types)[static_cast<size_t>(i)] == kSliding;
    config.layers.push_back({.window = local ? window : 0, .rotation = local ? 1 : 0});
  }
}

}  // namespace rf
