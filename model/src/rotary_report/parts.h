// Shared by the parts of the report: the table of model types, the collected findings, and the parts themselves.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../names.h"
#include "rf/io/gguf.h"
#include "rf/io/strict_object.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/rotary_report.h"

namespace rf {

// ---- What transformers' model types do with the rotation that config.json describes: a table, one line for each type.
// scripts/doctor_table.py writes it from transformers' own classes, and a Python test compares every line with them
// (tests/cli/test_doctor_families.py).

// How large the rotated part of a head is.
enum class RotarySize {
  kWhole,  // the head
  kShare,  // int(head size * share)
  kDim,    // rotary_dim elements
};

// Which layers do not rotate.
enum class UnrotatedLayers {
  kNone,
  kListed,        // layers with a 0 in no_rope_layers; without the list, every no_rope_layer_interval-th (4)
  kFull,          // full_attention in layer_types; without the list, every sliding_window_pattern-th (4)
  kFullIfWindow,  // the same where sliding_window is given
  kZeroBase,      // layers with a 0 in layer_rope_theta
};

// One rotation for all layers, or one for each type of layers.
enum class LayerTypes {
  kOne,
  kTwo,        // full_attention and sliding_attention; rope_scaling applies to the first
  kTwoScaled,  // the same; rope_scaling applies to both
  kOwn,        // as rope_parameters names them, with a base each; null: layers of this type do not rotate
};

struct RotaryFamily {
  std::string_view model_type;
  int64_t length = 2048;        // where max_position_embeddings is absent
  int64_t original_length = 0;  // where original_max_position_embeddings is absent at the top level; 0: none
  RotaryLayout layout = RotaryLayout::kHalves;
  double base = 10000;
  RotarySize size = RotarySize::kWhole;
  double part = 1;                                      // kShare: the share, kDim: the elements, if part_key is absent
  std::string_view part_key = "partial_rotary_factor";  // at the top level; inside, the key is always this one
  std::string_view base_key = "rope_theta";  // at the top level; "": the base is fixed, and so is the scaling
  std::string_view head_key = "head_dim";    // of the head size, or of the part of a head that a latent key has
  int64_t head_dim = 0;                      // where head_key is absent; 0: hidden_size / num_attention_heads
  LayerTypes layers = LayerTypes::kOne;
  double local_base = 0;  // of sliding_attention
  std::string_view local_base_key = "";
  UnrotatedLayers unrotated = UnrotatedLayers::kNone;
  std::string_view pairs_key = "";                      // true: pairs, false: halves
  std::string_view needed_key = "", needed_value = "";  // the model does not rotate with another value
  bool reads_scaling = true;                            // rope_parameters or rope_scaling
  bool plain_qkv = true;                                // q_proj, k_proj and v_proj have heads times the head size rows
};

std::span<const RotaryFamily> rotary_families();
const RotaryFamily* find_rotary_family(std::string_view model_type);  // nullptr for another type

// How a model type that does not rotate encodes positions: "learned vectors at the input"; "" for an unknown type.
std::string_view other_encoding(std::string_view model_type);
// The property of a model type's rotation that the table cannot describe; "" for an unknown type.
std::string_view refused_rotation(std::string_view model_type);

// ---- The collected findings, and the parts of the report.

class Findings {
 public:
  explicit Findings(std::vector<Finding>& all) : all_(all) {}
  template <typename... Args>
  void problem(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
    all_.push_back({Severity::kProblem, rule, fmt::format(format, std::forward<Args>(args)...)});
  }
  template <typename... Args>
  void note(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
    all_.push_back({Severity::kNote, rule, fmt::format(format, std::forward<Args>(args)...)});
  }

 private:
  std::vector<Finding>& all_;
};

// Sizes are bounded so that their products fit int64, and all tables of a report are small.
constexpr int64_t kMaxHeadSize = int64_t{1} << 16, kMaxHeads = int64_t{1} << 20, kMaxReportedLayers = int64_t{1} << 16,
                  kMaxReportedLength = int64_t{1} << 40, kMaxWidth = int64_t{1} << 36;

// The value, or nullptr if it is absent or null.
const nlohmann::json* given(const nlohmann::json& object, const std::string& key);
// The entry of a layer in per_layer_config, whose keys may have leading zeros; nullptr if it is missing.
const nlohmann::json* given_to_layer(const nlohmann::json& per_layer_config, size_t layer);
// The .gguf files of a directory, by name.
std::vector<std::filesystem::path> gguf_files(const std::filesystem::path& directory);

// Typed reading of an object, where null means absent. Throws Error naming the file, the key and its value.
class Keys {
 public:
  // prefix: prepended to the names of keys in messages, "" or "text_config."
  Keys(const nlohmann::json& object, const std::string& file, std::string prefix)
      : object_(object), file_(file), prefix_(std::move(prefix)) {}

  // The first given key that exists; 0, "", or the fallback if all are missing.
  int64_t integer(std::initializer_list<const char*> names, int64_t low, int64_t high) const;
  std::string text(const char* name) const;
  bool boolean(const char* name, bool fallback) const;
  double number(const char* name, double fallback, io::NumberRange range) const;
  // The object or list of that name; nullptr if it is absent.
  const nlohmann::json* object(const char* name) const;
  const nlohmann::json* list(const char* name) const;

  const nlohmann::json& json() const { return object_; }
  const std::string& prefix() const { return prefix_; }
  const std::string& file() const { return file_; }

 private:
  io::StrictObject strict() const;

  const nlohmann::json& object_;
  const std::string& file_;
  std::string prefix_;
};

// The keys by which a model describes its rotation, for all families.
std::span<const std::string_view> rotary_keys();
// Adds a note for each existing key that the family does not read; a problem for a scaling.
void note_unread_keys(const nlohmann::json& config, const std::string& prefix, const std::string& model_type,
                      const RotaryFamily* family, Findings& findings);

// The base of a dictionary: its rope_theta, otherwise top_key at the top level, otherwise fallback.
double base_of(const nlohmann::json& dictionary, const std::string& path, const Keys& top, std::string_view top_key,
               double fallback, Findings& findings);

struct GivenRotation {
  std::string layers;  // "all" or a layer type
  std::string path;
  nlohmann::json dictionary;
};
// The dictionaries of rope_parameters and rope_scaling, one per rotation of the model.
std::vector<GivenRotation> given_rotations(const Keys& keys, const std::string& model_type, const RotaryFamily* family,
                                           LayerTypes layers, Findings& findings);

// Numbers of the layers that do not rotate.
std::vector<int64_t> unrotated_layers(const Keys& keys, const RotaryFamily& family, int64_t layers, Findings& findings);

// Inputs for reading a dictionary of rotary parameters.
struct RotationShape {
  std::string file;
  std::string model_type;
  const RotaryFamily* family = nullptr;  // nullptr: unknown
  int64_t head_size = 0, length = 0;
  double base = 0;                         // the base to use
  std::optional<double> share;             // rotated share of the head; nullopt: rotary_dim gives it
  int64_t rotary_dim = 0;                  // if share is absent
  std::optional<int64_t> original_length;  // original_max_position_embeddings at the top level
  // How findings refer to the dictionary.
  std::string reader = "transformers", length_key = "max_position_embeddings";
  std::string original_key = "original_max_position_embeddings";
  std::vector<std::string> scalings;  // supported by the reader; empty: as in transformers
};
// The rotation of a dictionary as transformers reads it. path: of the dictionary, for findings. Throws Error for
// impossible values.
Rotation read_rotation(nlohmann::json dictionary, const std::string& path, const RotationShape& shape,
                       Findings& findings);

// Frequencies and angle errors of a rotation with a spec, for sequences of that many tokens (0: unknown).
void complete(Rotation& rotation, int64_t length);
// Notes on the rotation: large errors of angles, and frequencies that change with length.
void note_angles(const RotaryReport& report, Findings& findings);

// Inputs for the comparison with the weights.
struct WeightFacts {
  const RotaryFamily* family = nullptr;
  const nlohmann::json* config = nullptr;  // the object that describes the text model
  std::string file;
};
void check_weights(const CheckpointFiles& files, const WeightFacts& facts, RotaryReport& report, Findings& findings);

// Report on an object with the keys of config.json, without weights.
RotaryReport report_of_object(const nlohmann::json& object, const std::string& path);
RotaryReport report_of_config(const std::string& directory);
RotaryReport report_of_gguf(const std::string& path);
RotaryReport report_of_gguf(const io::GgufFile& file, const std::string& path);

}  // namespace rf
