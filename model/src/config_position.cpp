// Position encoding and attention in config.json, and the model_type that follows from them. unlike_transformers()
// alone decides whether transformers computes the same as a config. This file names only encodings that transformers'
// own model types imply.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/strict_object.h"
#include "rf/model/config.h"

namespace rf {
namespace {

using nlohmann::json;

constexpr std::string_view kRopeKeys[] = {"rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor",
                                          "original_max_position_embeddings"};

const char* default_encoding(std::string_view type) {
  if (type == "bert") return "learned";
  return type == "nezha" ? "nezha" : "rope";
}

// "name", or {"type": "name", options}.
template <typename Config>
Config parse_choice(const json& value, std::string_view where, std::string_view key) {
  if (value.is_string()) return {.type = value.get<std::string>(), .options = "{}"};
  const auto type = value.is_object() ? value.find("type") : value.end();
  if (!value.is_object() || type == value.end() || !type->is_string())
    fail(where, "{} must be a name, or an object with a name as its type, got {}", key, shown(value));
  json options = value;
  options.erase("type");
  return {.type = type->get<std::string>(), .options = options.dump()};
}

// As at the top, a key of rotary embedding that is null is not given.
EncodingConfig parse_encoding(const json& value, std::string_view where) {
  json given = value;
  for (const std::string_view key : kRopeKeys) {
    if (const auto found = given.find(key); found != given.end() && found->is_null()) given.erase(found);
  }
  return parse_choice<EncodingConfig>(given, where, "position_encoding");
}

void give_option(EncodingConfig& encoding, std::string_view where, std::string_view key, const json& value) {
  json options = io::parse_json(encoding.options, "position_encoding");
  if (options.contains(key))
    fail(where, "{} must be given once, got {} in addition to the one in position_encoding", key, shown(value));
  options[std::string(key)] = value;
  encoding.options = options.dump();
}

template <typename Config>
json choice_to_json(const Config& config, const json& options) {
  if (options.empty()) return config.type;
  json object = options;
  object["type"] = config.type;
  return object;
}

// Whether the encoding is the one that model_type `type` means; only a nezha's has an option.
bool is_of_type(const std::vector<EncodingConfig>& encodings, std::string_view type) {
  if (encodings.size() != 1 || encodings[0].type != default_encoding(type)) return false;
  return encodings[0].options == "{}" || type == "nezha";
}

TrainingPositions read_training_positions(const json& given, std::string_view where) {
  io::StrictObject options(given, std::string(where), "training_positions");
  options.require({"type"});
  using Kind = TrainingPositions::Kind;
  TrainingPositions positions;
  positions.kind =
      options.choice("type", Kind::kRandomized,
                     {{"randomized", Kind::kRandomized}, {"shifted", Kind::kShifted}, {"augmented", Kind::kAugmented}});
  if (positions.kind == Kind::kAugmented) {
    positions.global_shift = options.number("max_global_shift", 0, {0, 1e9});
    positions.local_shift = options.number("max_local_shift", 0, {0, 1e9});
    positions.global_scaling = options.number("max_global_scaling", 1, {1, 1e9});
    options.finish();
    if (positions == TrainingPositions{.kind = Kind::kAugmented})
      fail(where, "training_positions must have a shift above 0 or a max_global_scaling above 1, got none");
    return positions;
  }
  const char* const most = positions.kind == Kind::kRandomized ? "max_positions" : "max_shift";
  options.require({most});
  positions.most = options.integer(most, 0, 1, int64_t{1} << 31);
  options.finish();
  return positions;
}

json training_positions_to_json(const TrainingPositions& positions) {
  switch (positions.kind) {
    case TrainingPositions::Kind::kShifted: return {{"type", "shifted"}, {"max_shift", positions.most}};
    case TrainingPositions::Kind::kAugmented:
      return {{"type", "augmented"},
              {"max_global_shift", positions.global_shift},
              {"max_local_shift", positions.local_shift},
              {"max_global_scaling", positions.global_scaling}};
    default: return {{"type", "randomized"}, {"max_positions", positions.most}};
  }
}

// Whether transformers' classes of model_type `type` compute without any of kRopeKeys.
bool has_fixed_rotation(std::string_view type) { return family_of_name(type).has_value() || type == "nezha"; }

// The key that transformers' classes of model_type `type` would not honour, and its value.
struct Unlike {
  std::string key, value;
};
std::optional<Unlike> unlike_transformers(const ModelConfig& config, std::string_view type) {
  if (config.training_positions != TrainingPositions{})
    return Unlike{"training_positions", shown(training_positions_to_json(config.training_positions))};
  if (config.prefix_lm) return Unlike{"prefix_lm", "true"};
  if (config.block == modernbert_block()) return Unlike{"block", "modernbert"};
  if (config.classifier_pooling != "cls") return Unlike{"classifier_pooling", config.classifier_pooling};
  if (config.attention != AttentionConfig{}) return Unlike{"attention", config.attention.type};
  if (config.family == Family::kBert && config.rotary_value) return Unlike{"rotary_value", "true"};
  if (is_of_type(config.position_encodings, type)) return std::nullopt;
  if (config.position_encodings.size() == 1) {
    const json options = io::parse_json(config.position_encodings[0].options, "position_encoding");
    for (const std::string_view key : kRopeKeys) {
      if (options.contains(key)) return Unlike{std::string(key), shown(options[std::string(key)])};
    }
  }
  return Unlike{"position_encoding", shown(position_to_json(config)["position_encoding"])};
}

}  // namespace

std::string model_type(const ModelConfig& config) {
  if (config.is_foreign()) return config.foreign_type;
  if (config.decoder) return std::string(translation_type(config));
  const std::string type(family_name(config.family));
  return unlike_transformers(config, type) ? "rf_encoder" : type;
}

bool is_neutral_rotation(std::string_view key, const json& value) {
  constexpr double kBase = 10000;
  if (key == "rope_theta") return value == kBase;
  if (key == "partial_rotary_factor") return value == 1;
  if (key == "rope_type" || key == "type") return value == "default";
  const bool is_dictionary = key == "rope_parameters" || key == "rope_scaling";
  return is_dictionary && value.is_object() && std::ranges::all_of(value.items(), [](const auto& item) {
           return item.value().is_null() || is_neutral_rotation(item.key(), item.value());
         });
}

void read_position(const json& object, std::string_view where, std::string_view type, ModelConfig& config) {
  std::vector<EncodingConfig>& encodings = config.position_encodings;
  encodings = {{.type = default_encoding(type), .options = "{}"}};
  if (const auto value = object.find("position_encoding"); value != object.end()) {
    encodings.clear();
    for (const json& entry : value->is_array() ? *value : json::array({*value}))
      encodings.push_back(parse_encoding(entry, where));
  }
  for (const std::string_view key : kRopeKeys) {
    const auto value = object.find(key);
    if (value == object.end() || value->is_null()) continue;
    if (has_fixed_rotation(type) && is_neutral_rotation(key, *value)) continue;
    if (encodings.size() != 1) {
      fail(where, "{} must be inside the entry of position_encoding that it belongs to, got {} with {} entries", key,
           shown(*value), encodings.size());
    }
    give_option(encodings[0], where, key, *value);
  }
  if (type == "nezha" && object.contains(kNezhaDistance))
    give_option(encodings[0], where, kNezhaDistance, object[std::string(kNezhaDistance)]);
  if (const auto value = object.find("attention"); value != object.end())
    config.attention = parse_choice<AttentionConfig>(*value, where, "attention");
  if (const auto value = object.find("training_positions"); value != object.end()) {
    config.training_positions = read_training_positions(*value, where);
    if (config.training_positions.kind == TrainingPositions::Kind::kAugmented &&
        (encodings.size() != 1 || encodings[0].type != "sinusoidal")) {
      fail(where, "training_positions of type augmented must go with position_encoding sinusoidal alone, got {}",
           shown(position_to_json(config)["position_encoding"]));
    }
  }
}

void check_type(const ModelConfig& config, std::string_view where, std::string_view type) {
  if (type.empty() || type == "rf_encoder") return;
  if (const std::optional<Unlike> unlike = unlike_transformers(config, type)) {
    fail(where, "model_type {} must have no key that transformers would not honour (rf_encoder may), got {}: {}", type,
         unlike->key, unlike->value);
  }
}

json position_to_json(const ModelConfig& config) {
  json object = json::object(), list = json::array();
  for (const EncodingConfig& encoding : config.position_encodings) {
    json options = io::parse_json(encoding.options, "position_encoding");
    if (config.position_encodings.size() == 1) {
      for (const std::string_view key : kRopeKeys) {
        const std::string name(key);
        if (!options.contains(name)) continue;
        object[name] = options[name];
        options.erase(name);
      }
    }
    list.push_back(choice_to_json(encoding, options));
  }
  object["position_encoding"] = list.size() == 1 ? list[0] : list;
  object["attention"] = choice_to_json(config.attention, io::parse_json(config.attention.options, "attention"));
  if (config.training_positions != TrainingPositions{})
    object["training_positions"] = training_positions_to_json(config.training_positions);
  return object;
}

}  // namespace rf
