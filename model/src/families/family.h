// A family of models of other libraries: how its configuration fills a ModelConfig, and the names of
// its tensors. Each has a file in this folder and is listed in families.cpp; the table of rotary_report/families.cpp
// has its rotation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/io/strict_object.h"
#include "rf/model/config.h"
#include "rf/model/rotary_report.h"

namespace rf {

class Keys;  // rotary_report/parts.h

// A module of weight_specs(), or a tensor, without the encoder's prefix, and its name in files; {} stands for the
// numbers of the layer and the expert. A module with several rows may have any of the names in a file; the first is
// written, for layers of multiple choice the last.
struct ModuleName {
  std::string_view module;
  std::string_view in_file;  // of safetensors; modules of the encoder follow the family's prefix
  std::string_view in_gguf;  // "": not in GGUF files
};

enum class Windows {
  kNone,      // the class lacks windows
  kAll,       // all layers have sliding_window
  kSwitched,  // with use_sliding_window: the layers that layer_types names, or from max_window_layers on
  kPattern,   // the layers that layer_types names, or all but every sliding_window_pattern-th
};
// The keys that set the windows.
std::span<const std::string_view> window_keys(Windows windows);

struct ModelFamily {
  std::string_view model_type;       // of config.json, or a name of ours for a variant
  std::string_view variant_of = "";  // the model_type of files that belong here where is_variant() says so
  bool (*is_variant)(const nlohmann::json& object) = nullptr;
  std::string_view outer_type = "";     // of files with these keys in text_config; reads only this model's tensors
  std::string_view gguf = "";           // general.architecture; "": no GGUF files
  std::string_view classes;             // how transformers' class names begin
  std::string_view other_classes = "";  // all but the language model's, where they begin otherwise
  std::string_view prefix;              // of the encoder's tensors in a model with a head
  std::string_view old_prefix = "";     // the same in other files; "": none
  std::string_view frequencies = "";    // how the names of tensors end that have the rotation's; "": computed
  bool berts_names = false;             // modules without a row are named as in BERT
  std::span<const ModuleName> modules;
  Family heads = Family::kDecoder;  // kBert: an encoder with BERT's embeddings
  BlockSpec block = {};
  HeadSpec layers_of_heads = {};
  std::vector<Head> classless = {};  // heads for which transformers lacks a class
  bool token_types = true;           // type_vocab_size counts
  bool rotates = true;               // else positions are as follows
  PositionSpec positions = {};
  Activation activation = Activation::kSilu;
  bool any_activation = false;  // activation_key may name another
  std::string_view activation_key = "hidden_act";
  std::optional<RotaryLayout> layout = {};  // where the table of the report does not have the model type
  std::string_view eps_key = "rms_norm_eps";
  double eps = 1e-6;
  Windows windows = Windows::kNone;
  // The configuration class's defaults for absent keys, except null; a key that is null stays null. The default of
  // max_position_embeddings is in the table of the report.
  std::string_view defaults = "{}";
  std::vector<std::string_view> keys = {};  // that the class reads besides the keys of all families
  std::vector<std::pair<std::string_view, std::string_view>> renamed_keys = {};  // the family's, and the usual one
  std::vector<std::string_view> off_keys = {};  // which must be absent, null, false or 0
  // Converts the keys of the authors' own class to the keys of transformers.
  void (*rewrite)(nlohmann::json& object, const std::string& where) = [](nlohmann::json&, const std::string&) {};
  // Reads these keys.
  void (*read)(const Keys& keys, ModelConfig& config) = [](const Keys&, ModelConfig&) {};
};

// Sets a key to what another spelling of it, `theirs`, says. Throws Error where the key says otherwise.
void put_spelling(nlohmann::json& object, const std::string& key, const nlohmann::json& value, std::string_view theirs,
                  const std::string& where);

// The first row whose name in `from` is that of the tensor `name` and whose module fits; the name in `to`. "": none.
std::string renamed(
    std::span<const ModuleName> rows, std::string_view ModuleName::*from, std::string_view ModuleName::*to,
    std::string_view name,
    const std::function<bool(std::string_view module)>& fits = [](std::string_view) { return true; });

std::span<const ModelFamily> model_families();
const ModelFamily* find_family(std::string_view ModelFamily::*name, std::string_view value);  // nullptr: none
const ModelFamily& family_of(const ModelConfig& config);  // of a model of another library

// Steps of reading a model, from config.json or from the keys of a GGUF file.
inline constexpr int64_t kMaxExtent = int64_t{1} << 24, kMaxForeignLayers = int64_t{1} << 12;
inline constexpr io::NumberRange kEpsRange = {0, 1, io::NumberRange::Ends::kOpenLow};
inline constexpr const char* kActivationNames = "gelu, gelu_new, relu, relu2, silu or tanh";
inline constexpr io::NumberRange kMultiplierRange = {0, 1e6, io::NumberRange::Ends::kOpenLow};
// A number that must be there.
int64_t extent(const Keys& keys, const std::string& name, int64_t most = kMaxExtent);
void check_heads(const ModelConfig& config, const std::string& path);
ModelConfig config_of(const ModelFamily& family, std::string_view foreign_type);
// The file, with the defaults of its class for absent keys. Leaves out a default that the other values exclude, so that
// it does not cause a message.
nlohmann::json with_defaults(nlohmann::json object, const ModelFamily& family, const std::string& where,
                             const std::filesystem::path& dir);
// Reads the rotations out of the report: one for all layers, or one for each type of layer in config.layers.
void read_rotation(const RotaryReport& report, const std::string& path, const ModelFamily& family, ModelConfig& config);
// After read_windows(): the layers that do not rotate.
void leave_unrotated(const RotaryReport& report, ModelConfig& config);

// Fills config.layers where layers have windows, or rotations that differ. object: with the defaults of the class.
void read_windows(const nlohmann::json& object, const Keys& keys, const ModelFamily& family, ModelConfig& config);

// Heads of causal models: one matrix after the hidden states.
inline constexpr HeadSpec kDecoderHeads = {.sequence = HeadSpec::Before::kNothing,
                                           .choice = HeadSpec::Before::kNothing,
                                           .bare_pooler = false,
                                           .last_bias = false,
                                           .transform = HeadSpec::Transform::kNone,
                                           .vocabulary_bias = HeadSpec::VocabularyBias::kNone};

// A family of BERT's layers and heads, with trained positions; `modules` have other names in its files.
ModelFamily like_bert(std::string_view model_type, std::string_view classes, std::string_view prefix,
                      std::span<const ModuleName> modules);
// Families that others are made of, and blocks and modules of Llama.
ModelFamily llama();
ModelFamily gemma3();
BlockSpec llama_block();
std::span<const ModuleName> llama_modules();
// Reads attention_bias; and mlp_bias, too, both false where they are absent.
void read_attention_bias(const Keys& keys, ModelConfig& config, bool fallback = false);
void read_biases(const Keys& keys, ModelConfig& config);
// Reads one switch for the biases of all matrices of a block.
void read_all_biases(const Keys& keys, const char* key, bool fallback, ModelConfig& config);
// Sets ALiBi in place of the rotation of a causal model.
void set_linear_positions(const Keys& keys, ModelConfig& config);
// Sets an absent feed-forward width to 4 times the model width.
void put_inner_width(nlohmann::json& object);
// A family's own rows, followed by the rows of another. The first row with a name counts.
std::vector<ModuleName> joined(std::initializer_list<ModuleName> own, std::span<const ModuleName> others);
// Fills config.layers from layer_types; if it is absent, slides(i) tells whether layer i has a window. Layers with
// windows use the second rotation.
void read_layer_types(const Keys& keys, int64_t window, const std::function<bool(int64_t)>& slides,
                      ModelConfig& config);
// num_local_experts or num_experts, and num_experts_per_tok.
void read_expert_counts(const Keys& keys, ModelConfig& config);
// The activation that a key names; absent: `fallback`.
Activation activation_in(const Keys& keys, const char* key, Activation fallback);
// classifier_pooling, which must be one of `names`; absent: the first.
std::string pooling_of(const Keys& keys, std::initializer_list<std::string_view> names);
// Positions of RoBERTa: the first is the row after that of padding. Its heads, and their modules.
void read_padding_row(const Keys& keys, ModelConfig& config);
HeadSpec roberta_heads();
std::span<const ModuleName> roberta_modules();
// Whether a text of auto_map, the authors' own classes, contains the word.
bool has_own_class(const nlohmann::json& object, std::string_view word);

}  // namespace rf
