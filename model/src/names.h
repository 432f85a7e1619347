// Shared by the sources of the configuration: names of values, and the steps of parse_config and to_json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rf/io/printable.h"
#include "rf/model/config.h"

namespace rf {

std::optional<Family> family_of_name(std::string_view name);
inline std::string_view norm_name(NormKind kind) { return kind == NormKind::kRms ? "rms_norm" : "layer_norm"; }

using io::shown;

inline constexpr int64_t kMaxLayers = 1 << 16;  // the names of all weights are created before any weight is read

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

// An encoder of another library (foreign_models.h): whether model_type is one, and its configuration.
bool is_foreign_encoder(const nlohmann::json& object);
ModelConfig parse_foreign_config(const nlohmann::json& object, const std::string& where);
// The model types in model/src/families with the heads of `heads`.
std::vector<std::string_view> foreign_types(Family heads);
// How the class names of all families in model/src/families begin, and whose heads they have.
std::vector<std::pair<std::string_view, Family>> foreign_classes();
// Labels, problem_type and architectures of such a file.
void read_foreign_head(const nlohmann::json& object, std::string_view where, ModelConfig& config);
// The model_type and the config.json of an encoder-decoder.
std::string_view translation_type(const ModelConfig& config);
nlohmann::json translation_json(const ModelConfig& config);
// How the class names of a foreign model begin in transformers.
std::string_view foreign_class(const ModelConfig& config, Head head);

// The largest difference of a stored position table from the computed one.
double position_table_error(std::span<const double> stored, int64_t dim);

// Everything that the types do not say: ranges and relations between keys. `where` names the file in messages.
void check_config(const ModelConfig& config, std::string_view where);

// Keys of config.json that a model family does not read, with one rule for all families. A key that changes the result
// is refused unless its value changes nothing. A known harmless key is ignored, regardless of its value. An unknown key
// is refused or causes a warning.

// How a reader treats an unknown key.
enum class UnknownKeys {
  kRefused,  // in a file that a user writes for this program
  kWarned,   // in a model directory, which other programs write
};

// The value for the comparison; 0 and "": unknown.
struct KeyContext {
  std::string_view where;  // for messages
  UnknownKeys unknown = UnknownKeys::kWarned;
  bool causal = false;
  int64_t hidden_size = 0, heads = 0, head_dim = 0, max_position_embeddings = 0;
  double rope_base = 0;
  std::string activation = {};
  std::vector<std::string_view> hints = {};  // keys that the reader reads, for "did you mean"
};

// A key of config.json that no model reads, regardless of its value.
enum class Harmless {
  kKept,     // written back unchanged
  kDropped,  // describes the original file: its place, its dtype
};
std::optional<Harmless> harmless_key(std::string_view key);

// Throws Error, or warns, for a key that is not read.
void check_unread_key(std::string_view key, const nlohmann::json& value, const KeyContext& context);

}  // namespace rf
