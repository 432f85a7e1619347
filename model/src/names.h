// What the files of the configuration share: its words, and the pieces that parse_config and to_json are made of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/model/config.h"

namespace rf {

std::optional<Family> family_of_name(std::string_view name);
std::optional<Activation> activation_of_name(std::string_view name);
std::string_view name_of_activation(Activation activation);
inline std::string_view norm_name(NormKind kind) { return kind == NormKind::kRms ? "rms_norm" : "layer_norm"; }

// A key that changes the result unless it has one of these values (JSON text).
struct FixedKey {
  std::string_view key;
  std::vector<std::string_view> allowed;
  std::string_view reason;
};
const FixedKey* fixed_key(std::string_view key);

// Keys that ModelConfig holds.
const std::vector<std::string_view>& config_keys();

// A value for a message: one line, cut.
std::string shown(const nlohmann::json& value);

// The key of a nezha's config that is an option of its encoding.
inline constexpr std::string_view kNezhaDistance = "max_relative_position";

// position_encoding, attention and the keys that go with them, out of a config of model_type `type` ("": none) and
// back.
void read_position(const nlohmann::json& object, std::string_view where, std::string_view type, ModelConfig& config);
nlohmann::json position_to_json(const ModelConfig& config);
// Whether a key of rotary embedding changes nothing in a model type of transformers that does not read it: base 10000,
// whole heads, no scaling.
bool is_neutral_rotation(std::string_view key, const nlohmann::json& value);
// Throws Error when model_type `type` is one of transformers' and transformers would compute something else.
void check_type(const ModelConfig& config, std::string_view where, std::string_view type);

// Everything that the types do not say: ranges and relations between keys. `where` names the file in messages.
void check_config(const ModelConfig& config, std::string_view where);

}  // namespace rf
