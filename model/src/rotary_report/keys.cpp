// Keys of config.json (parts.h).
#include "parts.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "rf/io/error.h"

namespace rf {

namespace {

constexpr std::string_view kRotaryKeys[] = {
    "rope_parameters",       "rope_scaling",     "rope_theta",        "partial_rotary_factor",
    "rotary_emb_base",       "rotary_pct",       "rotary_dim",        "rope_ratio",
    "rope_local_base_freq",  "local_rope_theta", "global_rope_theta", "rotary_emb_fraction",
    "rotary_base",           "rope_base",        "qk_rope_head_dim",  "rotary_emb_interleaved",
    "rotary_scaling_factor", "rope_interleave",  "rope_percentage",   "rotary_percentage"};

// The same bounds for a base as in the reader of RopeSpec.
constexpr io::NumberRange kBaseRange = {0, 1e100, io::NumberRange::Ends::kOpenLow};

bool is_read_by(const RotaryFamily& family, std::string_view key) {
  const bool scaling = key == "rope_parameters" || key == "rope_scaling";
  if (scaling) return family.reads_scaling && (family.layers != LayerTypes::kOwn || key == "rope_parameters");
  // The finding "ignored-share" tells whether transformers follows this value.
  if (key == "partial_rotary_factor") return family.reads_scaling && family.part_key != "rotary_pct";
  return key == family.base_key || key == family.local_base_key || key == family.part_key || key == family.head_key ||
         key == family.pairs_key;
}

bool has_layer_types(const nlohmann::json& dictionary) {
  return std::ranges::any_of(dictionary, [](const nlohmann::json& value) { return value.is_object(); });
}

// Both dictionaries, with equivalent spellings unified.
nlohmann::json comparable(const nlohmann::json& dictionary) {
  nlohmann::json same = nlohmann::json::object();
  for (const auto& [key, value] : dictionary.items()) {
    if (!value.is_null()) same[key == "type" ? "rope_type" : key] = value;
  }
  same.erase("rope_theta");
  return same;
}

}  // namespace

const nlohmann::json* given_to_layer(const nlohmann::json& per_layer_config, size_t layer) {
  constexpr size_t kMaxDigits = 5;
  for (std::string name = fmt::format("{}", layer); name.size() <= kMaxDigits; name.insert(0, 1, '0')) {
    if (const nlohmann::json* const found = given(per_layer_config, name); found != nullptr) return found;
  }
  return nullptr;
}

const nlohmann::json* given(const nlohmann::json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// A prefix ends with a dot.
io::StrictObject Keys::strict() const {
  return {object_, file_, prefix_.substr(0, prefix_.empty() ? 0 : prefix_.size() - 1)};
}

int64_t Keys::integer(std::initializer_list<const char*> names, int64_t low, int64_t high) const {
  for (const char* name : names) {
    if (given(object_, name) != nullptr) return strict().integer(name, 0, low, high);
  }
  return 0;
}

std::string Keys::text(const char* name) const {
  if (given(object_, name) == nullptr) return "";
  std::string value = strict().text(name, "");
  if (value.empty()) fail(file_, "{}{} must be null or a name, got \"\"", prefix_, name);
  return value;
}

bool Keys::boolean(const char* name, bool fallback) const {
  return given(object_, name) == nullptr ? fallback : strict().boolean(name, fallback);
}

double Keys::number(const char* name, double fallback, io::NumberRange range) const {
  return given(object_, name) == nullptr ? fallback : strict().number(name, fallback, range);
}

const nlohmann::json* Keys::object(const char* name) const {
  const nlohmann::json* const value = given(object_, name);
  if (value != nullptr && !value->is_object())
    fail(file_, "{}{} must be an object, got {}", prefix_, name, shown(*value));
  return value;
}

const nlohmann::json* Keys::list(const char* name) const {
  const nlohmann::json* const value = given(object_, name);
  if (value != nullptr && !value->is_array()) fail(file_, "{}{} must be a list, got {}", prefix_, name, shown(*value));
  return value;
}

std::span<const std::string_view> rotary_keys() { return kRotaryKeys; }

void note_unread_keys(const nlohmann::json& config, const std::string& prefix, const std::string& model_type,
                      const RotaryFamily* family, Findings& findings) {
  if (family == nullptr) return;
  std::vector<std::string> unread;
  for (const std::string_view key : kRotaryKeys) {
    const nlohmann::json* const value = given(config, std::string(key));
    if (value == nullptr || is_read_by(*family, key)) continue;
    const nlohmann::json same = value->is_object() ? comparable(*value) : nlohmann::json::object();
    const nlohmann::json* const type = given(same, "rope_type");
    const bool scaling = type != nullptr && *type != "default";
    if (scaling) {
      findings.problem("ignored-scaling", "transformers does not read {}{} in {}, and nothing is scaled", prefix, key,
                       model_type);
    } else {
      unread.push_back(prefix + std::string(key));
    }
  }
  if (!unread.empty())
    findings.note("ignored-key", "transformers does not read {} in {}", fmt::join(unread, ", "), model_type);
}

double base_of(const nlohmann::json& dictionary, const std::string& path, const Keys& top, std::string_view top_key,
               double fallback, Findings& findings) {
  const std::string key(top_key);
  const Keys inside(dictionary, top.file(), path + ".");
  const bool has_inside = given(dictionary, "rope_theta") != nullptr;
  const bool has_outside = !key.empty() && given(top.json(), key) != nullptr;
  const double inner = inside.number("rope_theta", fallback, kBaseRange);
  const double outer = key.empty() ? fallback : top.number(key.c_str(), fallback, kBaseRange);
  if (has_inside && has_outside && inner != outer) {
    findings.problem("bases-differ",
                     "{}{} is {} and {}.rope_theta is {}; transformers 5 and llama.cpp's converter follow the second, "
                     "transformers 4 the first",
                     top.prefix(), key, outer, path, inner);
  }
  return has_inside ? inner : outer;
}

// The rotations of a class that defines its layer types; rope_parameters has a rotation for each type.
std::vector<GivenRotation> own_rotations(const Keys& keys, const std::string& model_type) {
  const nlohmann::json* const parameters = keys.object("rope_parameters");
  const std::string path = keys.prefix() + "rope_parameters";
  std::vector<GivenRotation> found;
  if (parameters != nullptr) {
    for (const auto& [type, own] : parameters->items()) {
      if (!own.is_object()) continue;
      if (given(own, "rope_theta") == nullptr) fail(keys.file(), "{}.{} must have rope_theta, got none", path, type);
      found.push_back({type, fmt::format("{}.{}", path, type), own});
    }
  }
  if (found.empty())
    fail(keys.file(), "{} must have a dictionary for each type of layers in {}, got none", path, model_type);
  return found;
}

std::vector<GivenRotation> given_rotations(const Keys& keys, const std::string& model_type, const RotaryFamily* family,
                                           LayerTypes layers, Findings& findings) {
  if (layers == LayerTypes::kOwn) return own_rotations(keys, model_type);
  const nlohmann::json* const parameters = keys.object("rope_parameters");
  const nlohmann::json* const scaling = keys.object("rope_scaling");
  const std::string new_path = keys.prefix() + "rope_parameters", old_path = keys.prefix() + "rope_scaling";
  if (parameters != nullptr && scaling != nullptr && !has_layer_types(*parameters) &&
      comparable(*parameters) != comparable(*scaling)) {
    findings.problem("dictionaries-differ",
                     "rope_parameters and rope_scaling are both given and differ; transformers 5 follows rope_scaling");
  }
  const bool nested = parameters != nullptr && has_layer_types(*parameters);
  const nlohmann::json none = nlohmann::json::object();
  if (layers == LayerTypes::kOne && !nested) {
    // An empty rope_scaling counts as absent.
    const bool follows_old = scaling != nullptr && !scaling->empty();
    nlohmann::json dictionary = follows_old ? *scaling : parameters != nullptr ? *parameters : none;
    return {{"all", follows_old ? old_path : new_path, std::move(dictionary)}};
  }
  if (layers == LayerTypes::kOne && family != nullptr) {
    findings.problem("layer-types", "{} has one dictionary per layer type, and {} has one rotation for all layers",
                     new_path, model_type);
  }
  if (layers != LayerTypes::kOne && parameters != nullptr && !parameters->empty() && !nested) {
    findings.problem("layer-types",
                     "{} must have one dictionary each for full_attention and sliding_attention in {}; transformers "
                     "ignores what it has",
                     new_path, model_type);
  }
  std::vector<std::string> types = {"full_attention", "sliding_attention"};
  if (layers == LayerTypes::kOne) {
    types.clear();
    for (const auto& [type, value] : parameters->items()) {
      if (value.is_object()) types.push_back(type);
    }
  }
  std::vector<GivenRotation> found;
  for (const std::string& type : types) {
    const nlohmann::json* const own = nested ? given(*parameters, type) : nullptr;
    if (own != nullptr && !own->is_object())
      fail(keys.file(), "{}.{} must be an object, got {}", new_path, type, shown(*own));
    GivenRotation rotation = {type, fmt::format("{}.{}", new_path, type), own != nullptr ? *own : none};
    if (scaling != nullptr && (type == "full_attention" || layers == LayerTypes::kTwoScaled)) {
      rotation.dictionary.update(*scaling);
      rotation.path = old_path;
    }
    found.push_back(std::move(rotation));
  }
  return found;
}

std::vector<int64_t> unrotated_layers(const Keys& keys, const RotaryFamily& family, int64_t layers,
                                      Findings& findings) {
  const UnrotatedLayers rule = family.unrotated;
  std::vector<int64_t> found;
  constexpr int64_t kEveryFourth = 4;
  const auto every = [&](const char* key) {
    // Original EXAONE files: "LLLG", where G is full attention.
    if (const nlohmann::json* const letters = given(keys.json(), key); letters != nullptr && letters->is_string()) {
      const auto pattern = letters->get<std::string>();
      for (int64_t i = 0; i < layers && !pattern.empty(); ++i) {
        if (pattern[static_cast<size_t>(i) % pattern.size()] == 'G') found.push_back(i);
      }
      return;
    }
    const int64_t given_interval = keys.integer({key}, 1, kMaxReportedLayers);
    const int64_t interval = given_interval == 0 ? kEveryFourth : given_interval;
    for (int64_t i = interval - 1; i < layers; i += interval) found.push_back(i);
  };
  const auto from_list = [&](const nlohmann::json& list, const char* key, const nlohmann::json& value) {
    if (std::ssize(list) != layers) {
      findings.problem("layer-list", "{}{} has {} entries, and there are {} layers", keys.prefix(), key, list.size(),
                       layers);
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i] == value) found.push_back(static_cast<int64_t>(i));
    }
  };
  const nlohmann::json* const types = keys.list("layer_types");
  if (family.layers == LayerTypes::kOwn && types != nullptr) {
    for (const auto& [type, rotation] : keys.object("rope_parameters")->items()) {
      if (rotation.is_null()) from_list(*types, "layer_types", type);
    }
    std::ranges::sort(found);
  }
  if (rule == UnrotatedLayers::kNone) return found;
  if (rule == UnrotatedLayers::kZeroBase) {
    const nlohmann::json* const bases = keys.list("layer_rope_theta");
    if (bases != nullptr) from_list(*bases, "layer_rope_theta", 0);
    return found;
  }
  if (rule == UnrotatedLayers::kListed) {
    const nlohmann::json* const list = keys.list("no_rope_layers");
    if (list != nullptr && !list->empty()) {
      from_list(*list, "no_rope_layers", 0);
    } else {
      every("no_rope_layer_interval");
    }
    return found;
  }
  if (rule == UnrotatedLayers::kFullIfWindow && given(keys.json(), "sliding_window") == nullptr) return found;
  if (types != nullptr) {
    from_list(*types, "layer_types", "full_attention");
  } else {
    every("sliding_window_pattern");
  }
  return found;
}

}  // namespace rf
