// Words of config.json that are not numbers: activations, and the keys that cannot change the result.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/model/config.h"

namespace rf {

std::optional<Activation> activation_of_name(std::string_view name);
std::string_view name_of_activation(Activation activation);

// A key of config.json that a RoFormer does not read, whatever its value.
enum class Harmless {
  kKept,     // written back as it was read
  kDropped,  // about the file it came from: its place, its dtype
};
std::optional<Harmless> harmless_key(std::string_view key);

// A key that changes the result unless it has one of these values (JSON text).
struct FixedKey {
  std::string_view key;
  std::vector<std::string_view> allowed;
  std::string_view reason;
};
const FixedKey* fixed_key(std::string_view key);

// The known key nearest to a misspelt one, or "" when none is near.
std::string_view nearest_key(std::string_view key);

// Keys that ModelConfig holds.
const std::vector<std::string_view>& config_keys();

// Everything that the types do not say: ranges and relations between keys. `where` names the file in messages.
void check_config(const ModelConfig& config, std::string_view where);

}  // namespace rf
