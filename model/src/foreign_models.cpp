// Reading the families of other libraries (foreign_models.h, families/family.h): sizes, blocks, and the rotation by
// rotary_report.h.
#include "rf/model/foreign_models.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "families/family.h"
#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/half.h"
#include "rf/io/printable.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/model_types.h"
#include "rf/model/rotary_report.h"
#include "rf/model/weights.h"
#include "rotary_report/parts.h"

namespace rf {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr io::NumberRange kDropoutRange = {0, 1, io::NumberRange::Ends::kOpenHigh};

// rope_theta counts in GPT-NeoX too where it is inside a dictionary; the report tells what is not read.
constexpr std::string_view kSharedKeys[] = {"model_type",        "architectures",       "vocab_size",
                                            "hidden_size",       "num_hidden_layers",   "num_attention_heads",
                                            "intermediate_size", "tie_word_embeddings", "max_position_embeddings",
                                            "type_vocab_size"};
constexpr std::string_view kRotationKeys[] = {"rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor",
                                              "original_max_position_embeddings"};
// Further keys of encoders.
constexpr std::string_view kEncoderKeys[] = {"hidden_dropout_prob",
                                             "attention_probs_dropout_prob",
                                             "initializer_range",
                                             "pad_token_id",
                                             "classifier_dropout",
                                             "problem_type",
                                             "id2label",
                                             "label2id",
                                             "num_labels"};
// Keys of families with the block of Llama.
constexpr std::string_view kGroupedKeys[] = {"num_key_value_heads", "head_dim"};

// The family of the model_type in config.json, or its variant that the other keys tell; nullptr for another type.
const ModelFamily* family_in(const json& object) {
  const json* const type = given(object, "model_type");
  if (type == nullptr || !type->is_string()) return nullptr;
  const auto variant = std::ranges::find_if(model_families(), [&](const ModelFamily& each) {
    return !each.variant_of.empty() && *type == each.variant_of && each.is_variant(object);
  });
  if (variant != model_families().end()) return &*variant;
  const auto name = type->get<std::string>();
  if (const ModelFamily* outer = find_family(&ModelFamily::outer_type, name); outer != nullptr) return outer;
  const ModelFamily* const found = find_family(&ModelFamily::model_type, name);
  return found != nullptr && found->variant_of.empty() ? found : nullptr;
}

bool lists(const ModelFamily& family, std::string_view key) {
  return std::ranges::find(family.keys, key) != family.keys.end();
}

// Whether a family reads kGroupedKeys: it lists them, or is a decoder with separate queries, keys and values.
bool has_grouped_keys(const ModelFamily& family) {
  return lists(family, kGroupedKeys[0]) ||
         (family.heads == Family::kDecoder && family.block.fused_qkv == BlockSpec::Fused::kNone);
}

}  // namespace

const ModelFamily* find_family(std::string_view ModelFamily::*name, std::string_view value) {
  const auto found = std::ranges::find(model_families(), value, name);
  return value.empty() || found == model_families().end() ? nullptr : &*found;
}

int64_t extent(const Keys& keys, const std::string& name, int64_t most) {
  const int64_t value = keys.integer({name.c_str()}, 1, most);
  if (value == 0) fail(keys.file(), "{} must be given, got none", name);
  return value;
}

void check_heads(const ModelConfig& config, const std::string& path) {
  if (config.num_attention_heads % config.key_heads() != 0) {
    fail(path, "query heads must be a multiple of key heads, got {} and {}", config.num_attention_heads,
         config.key_heads());
  }
}

ModelConfig config_of(const ModelFamily& family, std::string_view foreign_type) {
  ModelConfig config;
  config.family = family.heads;
  config.foreign_type = foreign_type;
  config.block = family.block;
  config.hidden_act = family.activation;
  config.final_norm = family.block.pre_norm;
  config.heads = family.layers_of_heads;
  config.positions = family.positions;
  if (family.heads != Family::kDecoder) return config;
  config.is_decoder = true;
  config.type_vocab_size = 0;
  config.embedding_norm = false;
  config.architectures = {fmt::format("{}ForCausalLM", family.classes)};
  return config;
}

void read_rotation(const RotaryReport& report, const std::string& path, const ModelFamily& family,
                   ModelConfig& config) {
  const std::optional<RotaryLayout> layout = family.layout;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kProblem) config.problems.push_back(path + ": " + finding.text);
  }
  const RotaryFamily* const row = find_rotary_family(family.model_type);
  const size_t most = row == nullptr || row->layers == LayerTypes::kOne ? 1 : 2;
  const bool known =
      !report.rotations.empty() && report.rotations.size() <= most &&
      std::ranges::all_of(report.rotations, [&](const Rotation& each) { return each.spec && (each.layout || layout); });
  if (!known) {
    const auto odd = std::ranges::find(report.findings, "rotary-size", &Finding::rule);
    if (odd != report.findings.end()) fail(path, "{}", odd->text);
    fail(path, "all layers must have one rotation that is known, got {} of scaling {}; roformer doctor shows it",
         report.rotations.size(), report.rotations.empty() ? "none" : report.rotations[0].scaling);
  }
  constexpr std::string_view kTypes[] = {"full_attention", "sliding_attention"};  // by LayerSpec::rotation
  for (const LayerSpec& layer : config.layers) {
    const auto i = static_cast<size_t>(layer.rotation);
    if (i < report.rotations.size() && report.rotations[i].layers == kTypes[i]) continue;
    fail(path, "rope_parameters must have a rotation for each of {}, got {}", fmt::join(kTypes, " and "),
         io::printable(report.rotations[0].layers));
  }
  config.head_size = report.head_size;
  config.max_position_embeddings = report.length;
  for (const Rotation& each : report.rotations) {
    config.rotations.emplace_back();
    config.rotations.back().spec = *each.spec;
    config.rotations.back().layout = each.layout ? *each.layout : *layout;
  }
}

void leave_unrotated(const RotaryReport& report, ModelConfig& config) {
  if (report.unrotated_layers.empty()) return;
  config.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  for (const int64_t layer : report.unrotated_layers) {
    if (layer < config.num_hidden_layers) config.layers[static_cast<size_t>(layer)].rotation = -1;
  }
}

namespace {

void add_stop_ids(const json& value, const std::string& where, ModelConfig& config) {
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (id.is_null()) continue;
    if (!id.is_number_integer() || id < 0 || id >= config.vocab_size)
      fail(where, "eos_token_id must be a token from 0 to {}, got {}", config.vocab_size - 1, shown(id));
    config.stop_ids.push_back(id.get<int32_t>());
  }
}

// The class that `architectures` names; of others, and without a name, the language model. Classification of a sequence
// reads the last token that is not padding.
void read_decoder_head(const Keys& keys, ModelConfig& config) {
  const json& object = keys.json();
  const json* const names = given(object, "architectures");
  if (names == nullptr || !names->is_array() || names->size() != 1 || !names->front().is_string()) return;
  using enum Head;
  for (const Head head : {kNone, kSequenceClassification, kTokenClassification, kQuestionAnswering}) {
    const std::string name = architecture_of(config, head);
    if (names->front() == name) config.architectures = {name};
  }
  const Head head = config.head();
  if (head == kNone || is_language_model(head)) return;
  if (head == kSequenceClassification) {
    config.classifier_pooling = "last";
    const bool pads = given(object, "pad_token_id") != nullptr;
    config.pad_token_id = pads ? keys.integer({"pad_token_id"}, 0, config.vocab_size - 1) : -1;
  }
  config.heads.last_bias = head != kSequenceClassification;
  config.architectures.clear();
  read_foreign_head(object, keys.file(), config);
}

// generation_config.json has precedence, as in transformers.
void read_stop_ids(const json& object, const fs::path& dir, ModelConfig& config) {
  const std::string generation = dir / "generation_config.json";
  if (io::has_file(generation)) {
    const json given = io::read_json(generation);
    if (given.is_object() && given.contains("eos_token_id"))
      return add_stop_ids(given["eos_token_id"], generation, config);
  }
  if (object.contains("eos_token_id")) add_stop_ids(object["eos_token_id"], (dir / "config.json").string(), config);
}

// For classes with a rotation for each type of layers, transformers 4 reads the older name of rope_type, and
// transformers 5 does not.
void check_scaling_name(const json& object, const ModelFamily& family, const std::string& where) {
  const RotaryFamily* const row = find_rotary_family(family.model_type);
  const bool by_types = row != nullptr && (row->layers == LayerTypes::kTwo || row->layers == LayerTypes::kTwoScaled);
  const json* const scaling = given(object, "rope_scaling");
  if (by_types && scaling != nullptr && scaling->is_object() && !scaling->empty() && !given(*scaling, "rope_type"))
    fail(where, "rope_scaling of a {} must have a rope_type, got {}", family.model_type, shown(*scaling));
}

}  // namespace

json with_defaults(json object, const ModelFamily& family, const std::string& where, const fs::path& dir) {
  for (const auto& [theirs, ours] : family.renamed_keys) {
    const auto found = object.find(theirs);
    if (found == object.end() || (found->is_null() && given(object, std::string(ours)) != nullptr)) continue;
    put_spelling(object, std::string(ours), json(*found), theirs, where);
  }
  family.rewrite(object, where);
  check_scaling_name(object, family, where);
  const json defaults = io::parse_json(family.defaults, "defaults");
  const bool has_generation_config = io::has_file((dir / "generation_config.json").string());
  const auto is_token = [&](const json& id) { return id < object.value("vocab_size", json(0)); };
  for (const auto& [key, value] : defaults.items()) {
    const bool stops = key == "eos_token_id";
    const bool are_tokens = value.is_array() ? std::ranges::all_of(value, is_token) : is_token(value);
    if (stops && (has_generation_config || !are_tokens)) continue;
    if (!object.contains(key)) object[key] = value;
  }
  return object;
}

namespace {

void check_unread_keys(const json& object, const std::string& path, const ModelFamily& family,
                       const ModelConfig& config) {
  std::vector<std::string_view> read(std::begin(kSharedKeys), std::end(kSharedKeys));
  read.push_back(family.activation_key);
  if (!family.eps_key.empty()) read.push_back(family.eps_key);
  if (family.rotates) read.insert(read.end(), std::begin(kRotationKeys), std::end(kRotationKeys));
  if (family.heads == Family::kBert) read.insert(read.end(), std::begin(kEncoderKeys), std::end(kEncoderKeys));
  for (const auto& renamed : family.renamed_keys) read.push_back(renamed.first);
  if (family.heads == Family::kDecoder) read.push_back("is_causal");
  if (has_grouped_keys(family)) read.insert(read.end(), std::begin(kGroupedKeys), std::end(kGroupedKeys));
  const std::span<const std::string_view> windows = window_keys(family.windows);
  read.insert(read.end(), windows.begin(), windows.end());
  read.insert(read.end(), family.keys.begin(), family.keys.end());
  KeyContext context = {.where = path,
                        .causal = config.is_decoder,
                        .hidden_size = config.hidden_size,
                        .heads = config.num_attention_heads,
                        .head_dim = config.head_dim(),
                        .max_position_embeddings = config.max_position_embeddings,
                        .rope_base = config.rotations.empty() ? 0 : config.rotations[0].spec.theta,
                        .hints = read};
  context.activation = name_of_activation(config.hidden_act);
  for (const std::string_view key : family.off_keys) {
    const json* const value = given(object, std::string(key));
    const bool is_usual = value != nullptr && ((key == kGroupedKeys[0] && *value == config.num_attention_heads) ||
                                               (key == kGroupedKeys[1] && *value == config.head_dim()));
    if (value != nullptr && !is_usual && *value != false && *value != 0)
      fail(path, "{} must be absent, null, false or 0 for {}, got {}", key, family.model_type, shown(*value));
    read.push_back(key);
  }
  for (const auto& [key, value] : object.items()) {
    const bool spare = key == "is_decoder" && family.heads == Family::kDecoder;  // whose classes do not read it
    if (!spare && std::ranges::find(read, key) == read.end()) check_unread_key(key, value, context);
  }
}

json config_json(const std::string& model_dir) {
  const std::string path = (fs::path(model_dir) / "config.json").string();
  json object = io::read_json(path);
  if (!object.is_object()) fail(path, "must be a JSON object with the keys of a model, got {}", shown(object));
  return object;
}

Activation read_activation(const Keys& keys, const ModelFamily& family) {
  const std::string key(family.activation_key), act = keys.text(key.c_str());
  if (act.empty()) return family.activation;
  const std::optional<Activation> activation = activation_of_name(act);
  if (!activation) fail(keys.file(), "{} must be {}, got {}", key, kActivationNames, io::printable(act));
  if (!family.any_activation && *activation != family.activation) {
    fail(keys.file(), "{} of a {} must be {}, got {}", key, family.classes, name_of_activation(family.activation),
         io::printable(act));
  }
  return *activation;
}

}  // namespace

void put_spelling(json& object, const std::string& key, const json& value, std::string_view theirs,
                  const std::string& where) {
  if (const json* other = given(object, key); other != nullptr && *other != value)
    fail(where, "{} and {} must be equal, got {} and {}", theirs, key, shown(value), shown(*other));
  object[key] = value;
}

const ModelFamily& family_of(const ModelConfig& config) {
  const ModelFamily* const found = find_family(&ModelFamily::model_type, config.foreign_type);
  return found != nullptr ? *found : *find_family(&ModelFamily::gguf, config.foreign_type);
}

std::optional<std::string> gguf_path(const std::string& path) {
  if (!fs::is_directory(path)) return io::has_file(path) ? std::optional(path) : std::nullopt;
  if (io::has_file(fs::path(path) / "config.json")) return std::nullopt;
  const std::vector<fs::path> found = gguf_files(path);
  if (found.size() > 1) {
    fail("model", "a directory without config.json must hold one .gguf file or the parts of one, got {} in {}",
         found.size(), path);
  }
  return found.empty() ? std::nullopt : std::optional(found[0].string());
}

bool is_foreign_decoder(const std::string& path) {
  if (gguf_path(path)) return true;
  if (!io::has_file((fs::path(path) / "config.json").string())) return false;  // load_config says so
  const ModelFamily* const family = family_in(config_json(path));
  return family != nullptr && family->heads == Family::kDecoder;
}

std::vector<std::string_view> foreign_types(Family heads) {
  std::vector<std::string_view> types;
  for (const ModelFamily& each : model_families()) {
    if (each.heads != heads || !each.variant_of.empty()) continue;
    types.push_back(each.model_type);
    if (!each.outer_type.empty()) types.push_back(each.outer_type);
  }
  return types;
}

std::vector<std::string_view> decoder_types() { return foreign_types(Family::kDecoder); }

namespace {

// Reads all keys except the rotation's. `keys` includes the defaults of the class.
ModelConfig read_keys(const Keys& keys, const ModelFamily& family) {
  const json& object = keys.json();
  const json* const quantized = given(object, "quantization_config");
  if (quantized != nullptr && !lists(family, "quantization_config"))
    fail(keys.file(), "weights must not be quantised (quantization_config), got {}", shown(*quantized));
  ModelConfig config = config_of(family, family.model_type);
  config.vocab_size = extent(keys, "vocab_size");
  config.hidden_size = config.embedding_size = extent(keys, "hidden_size");
  if (lists(family, "embedding_size")) config.embedding_size = keys.integer({"embedding_size"}, 1, kMaxExtent);
  config.num_hidden_layers = extent(keys, "num_hidden_layers", kMaxForeignLayers);
  config.num_attention_heads = extent(keys, "num_attention_heads");
  config.intermediate_size = extent(keys, "intermediate_size");
  if (has_grouped_keys(family)) config.num_key_value_heads = keys.integer({"num_key_value_heads"}, 1, kMaxExtent);
  check_heads(config, keys.file());
  config.layer_norm_eps =
      family.eps_key.empty() ? family.eps : keys.number(std::string(family.eps_key).c_str(), family.eps, kEpsRange);
  config.hidden_act = read_activation(keys, family);
  config.tie_word_embeddings = keys.boolean("tie_word_embeddings", family.heads == Family::kBert);
  // null is false, as in transformers
  config.is_decoder = family.heads == Family::kDecoder && keys.boolean("is_causal", !object.contains("is_causal"));
  family.read(keys, config);
  return config;
}

}  // namespace

bool is_foreign_encoder(const json& object) {
  const ModelFamily* const family = object.is_object() ? family_in(object) : nullptr;
  return family != nullptr && family->heads != Family::kDecoder;
}

namespace {

// Rows of a table of positions, or its absence.
void read_positions(const Keys& keys, ModelConfig& config) {
  PositionSpec& positions = config.positions;
  const int64_t rows = extent(keys, "max_position_embeddings");
  if (rows <= positions.first_row) {
    fail(keys.file(), "max_position_embeddings must be more than {}, the row of the first position, got {}",
         positions.first_row, rows);
  }
  config.max_position_embeddings = rows - positions.first_row;
  config.position_encodings = {{.type = positions.learned ? "learned" : "none", .options = "{}"}};
}

// The keys of a model: text_config if the file describes a multimodal model.
json text_keys(const json& file, const ModelFamily& family, const std::string& where) {
  if (family.outer_type.empty() || file["model_type"] != family.outer_type) return file;
  const json* const text = given(file, "text_config");
  const json type(family.model_type);
  if (text == nullptr || !text->is_object() || text->value("model_type", type) != type)
    fail(where, "text_config must have the keys of {}, got {}", family.model_type, text ? shown(*text) : "none");
  json keys = *text;
  keys["model_type"] = type;
  if (const json* const quantized = given(file, "quantization_config"); quantized != nullptr)
    keys["quantization_config"] = *quantized;
  return keys;
}

}  // namespace

namespace {

// `text` with `name` in place of the whole word `word`.
std::string with_word(std::string text, std::string_view word, std::string_view name) {
  const auto is_inside = [&](size_t place) {
    return place < text.size() && (std::isalnum(static_cast<unsigned char>(text[place])) != 0 || text[place] == '_');
  };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const bool is_whole = (at == 0 || !is_inside(at - 1)) && !is_inside(at + word.size());
    if (is_whole) text.replace(at, word.size(), name);
    at += is_whole ? name.size() : word.size();
  }
  return text;
}

// The result of read(), which knows keys by their usual names; its errors name them as `file` does.
template <typename Read>
ModelConfig with_names_of(const json& file, const ModelFamily& family, const std::string& where, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    const std::string prefix = "[" + where + "] ", whole = error.what();
    if (!whole.starts_with(prefix)) throw;
    std::string rule = whole.substr(prefix.size());
    for (const auto& [theirs, ours] : family.renamed_keys) {
      const bool is_theirs = file.contains(theirs) && given(file, std::string(ours)) == nullptr;
      if (is_theirs) rule = with_word(std::move(rule), ours, theirs);
    }
    throw Error(where, rule);
  }
}

ModelConfig parse_keys(const json& file, const ModelFamily& family, const std::string& where) {
  const json object = with_defaults(file, family, where, "");
  const Keys keys(object, where, "");
  ModelConfig config = read_keys(keys, family);
  if (given(object, "head_dim") == nullptr && config.hidden_size % config.num_attention_heads != 0) {
    fail(where, "hidden_size must be a multiple of num_attention_heads, got {} and {}", config.hidden_size,
         config.num_attention_heads);
  }
  config.type_vocab_size = family.token_types ? keys.integer({"type_vocab_size"}, 0, kMaxExtent) : 0;
  config.hidden_dropout_prob = keys.number("hidden_dropout_prob", 0, kDropoutRange);
  config.attention_probs_dropout_prob = keys.number("attention_probs_dropout_prob", 0, kDropoutRange);
  config.initializer_range = keys.number("initializer_range", config.initializer_range, {0, 1e3});
  config.pad_token_id = keys.integer({"pad_token_id"}, 0, config.vocab_size - 1);
  if (given(object, "classifier_dropout") != nullptr)
    config.classifier_dropout = keys.number("classifier_dropout", 0, kDropoutRange);
  config.foreign_config.text = file.dump();
  if (family.rotates) {
    const RotaryReport report = report_of_object(object, where);
    read_rotation(report, where, family, config);
    if (!report.unrotated_layers.empty())
      fail(where, "all layers of a {} must rotate, got {} that do not", family.model_type,
           report.unrotated_layers.size());
    const json options = {{"layout", name(config.rotations[0].layout)},
                          {"rope_parameters", io::parse_json(report.rotations[0].parameters, "rope_parameters")}};
    config.position_encodings = {{.type = "rope", .options = options.dump()}};
    if (!config.layers.empty()) config.position_encodings = {{.type = "none", .options = "{}"}};
  } else {
    read_positions(keys, config);
  }
  check_unread_keys(file, where, family, config);
  if (config.layers.empty()) config.rotations.clear();  // position_encodings has the only one
  read_foreign_head(object, where, config);
  check_config(config, where);
  return config;
}

}  // namespace

ModelConfig parse_foreign_config(const json& whole, const std::string& where) {
  const ModelFamily& family = *family_in(whole);
  const json file = text_keys(whole, family, where);
  return with_names_of(file, family, where, [&] { return parse_keys(file, family, where); });
}

namespace {

ModelConfig read_decoder_keys(const json& file, const ModelFamily& family, const std::string& path,
                              const std::string& model_dir) {
  const json object = with_defaults(file, family, path, model_dir);
  const Keys keys(object, path, "");
  ModelConfig config = read_keys(keys, family);
  if (family.rotates && config.positions.relative == PositionSpec::Relative::kNone) {
    const RotaryReport report = rotary_report(model_dir);
    read_rotation(report, path, family, config);
    read_windows(object, keys, family, config);
    leave_unrotated(report, config);
    if (report.length == 0 && config.rotations[0].spec.changes_with_length())
      fail(path, "max_position_embeddings must be a number, because the rotation depends on it, got null");
  } else {
    read_positions(keys, config);
  }
  check_unread_keys(file, path, family, config);
  read_decoder_head(keys, config);
  read_stop_ids(object, model_dir, config);
  return config;
}

}  // namespace

ModelConfig read_decoder_config(const std::string& model_dir) {
  const json file = config_json(model_dir);
  const std::string path = (fs::path(model_dir) / "config.json").string();
  const std::string type = Keys(file, path, "").text("model_type");
  const ModelFamily* family = find_family(&ModelFamily::model_type, type);
  if (family == nullptr || family->heads != Family::kDecoder)
    fail(path, "model_type must be {}, got {}", fmt::join(decoder_types(), ", "), io::printable(type));
  return with_names_of(file, *family, path, [&] { return read_decoder_keys(file, *family, path, model_dir); });
}

namespace {

constexpr const char* kFrequencyKey = "frequencies";  // a key of the encoding rope

}  // namespace

void read_stored_frequencies(const std::string& model_dir, ModelConfig& config) {
  const std::string_view end = family_of(config).frequencies;
  if (end.empty() || checkpoint_paths(model_dir).empty()) return;
  const CheckpointFiles files(model_dir, "model");
  std::vector<float> values;
  for (const auto& [name, view] : files.tensors()) {
    if (!name.ends_with(end) || view->shape.size() != 1) continue;
    if (!io::is_floating(view->dtype))
      fail("weights", "{} must be floating point, got {}", io::printable(name), io::safetensors_name(view->dtype));
    std::vector<float> own(static_cast<size_t>(view->shape[0]));
    io::read_floats(view->dtype, view->data.data(), view->shape[0], own.data());
    if (!values.empty() && own != values)
      fail("weights", "all layers must have the same frequencies, got others in {}", io::printable(name));
    values = std::move(own);
  }
  if (values.empty()) return;
  std::string& options = config.position_encodings[0].options;
  json keys = io::parse_json(options, "rope");
  keys[kFrequencyKey] = values;
  options = keys.dump();
}

std::vector<std::pair<std::string, std::vector<float>>> stored_frequencies(const ModelConfig& config, Head head) {
  if (!config.is_foreign() || family_of(config).frequencies.empty()) return {};
  const json options = io::parse_json(config.position_encodings[0].options, "rope");
  if (!options.contains(kFrequencyKey)) return {};
  std::vector<std::pair<std::string, std::vector<float>>> tensors;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    tensors.emplace_back(fmt::format("{}encoder.layer.{}.attention.self.{}", encoder_prefix(config, head), i,
                                     family_of(config).frequencies),
                         options[kFrequencyKey].get<std::vector<float>>());
  }
  return tensors;
}

ModelConfig load_any_config(const std::string& path) {
  const std::optional<std::string> gguf = gguf_path(path);
  if (gguf) return read_decoder_config(*gguf, io::GgufFile(*gguf));
  return is_foreign_decoder(path) ? read_decoder_config(path) : load_config(path);
}

namespace {

// Refuses dropout that modules for training do not apply, except in the heads for answers and for choices.
void check_dropout(const ModelConfig& config) {
  const ModelFamily& family = family_of(config);
  const json object = io::parse_json(config.foreign_config.text, "config");
  for (const auto& [key, value] : object.items()) {
    const bool is_read = std::ranges::find(kEncoderKeys, key) != std::end(kEncoderKeys) ||
                         std::ranges::any_of(family.renamed_keys, [&](const auto& each) { return each.first == key; });
    if (is_read || !key.ends_with("dropout") || key == "qa_dropout" || key.starts_with("summary_")) continue;
    if (value.is_number() && value != 0)
      fail("model", "{} of a {} must be 0 for training, which does not apply it, got {}", key, config.foreign_type,
           shown(value));
  }
}

}  // namespace

void check_has_module(const ModelConfig& config) {
  if (!config.is_foreign()) return;
  const BlockSpec& block = config.block;
  BlockSpec known = {.norm = block.norm,
                     .pre_norm = block.pre_norm,
                     .gated = block.gated,
                     .first_attention_norm = block.first_attention_norm,
                     .qkv_bias = block.qkv_bias,
                     .output_bias = block.output_bias,
                     .mlp_bias = block.mlp_bias,
                     .up_bias = block.up_bias,
                     .shared = block.shared};
  known.norm_bias = block.norm_bias;
  known.query_value_bias = block.query_value_bias;
  if (config.positions.relative == PositionSpec::Relative::kDisentangled)
    known.attention_scale = block.attention_scale;  // the encoding's
  const auto needs_own = [](const LayerSpec& layer) { return layer.head_dim > 0 || layer.key_heads > 0; };
  const std::pair<bool, const char*> parts[] = {
      {config.family == Family::kDecoder, "a causal model"},
      {block.experts > 0, "a mixture of experts"},
      {config.adapters.has_value(), "adapters for tasks"},
      {config.output_size > 0, "a projection of its results"},
      {block.conv_kernel > 0, "a convolution of its embeddings"},
      {block.embedding_norm_last, "a projection of its embeddings before their norm"},
      {apart(block) != known || std::ranges::any_of(config.layers, needs_own), "layers of another form"}};
  const auto* const found = std::ranges::find(parts, true, &std::pair<bool, const char*>::first);
  if (found == std::end(parts)) return check_dropout(config);
  fail("model", "training must support each part of a model, got {}, which has {}", config.foreign_type, found->second);
}

bool has_class(const ModelConfig& config, Head head) {
  return !config.is_foreign() ||
         std::ranges::find(family_of(config).classless, head) == family_of(config).classless.end();
}

ModelConfig parse_new_config(const json& given) {
  if (!is_foreign_encoder(given)) return parse_config(given);
  json object = given;
  object.emplace("vocab_size", kMaxExtent);
  object.emplace("pad_token_id", 0);
  return parse_foreign_config(object, "config");
}

ModelConfig with_vocabulary(ModelConfig config, int64_t size, int64_t pad_token_id) {
  if (config.is_foreign()) {
    json object = io::parse_json(config.foreign_config.text, "config");
    object["vocab_size"] = size;
    object["pad_token_id"] = pad_token_id;
    return parse_foreign_config(object, "model");
  }
  config.vocab_size = size;
  config.pad_token_id = pad_token_id;
  return config;
}

BlockSpec apart(BlockSpec block) {
  block.fused_qkv = BlockSpec::Fused::kNone;
  block.fused_gate = BlockSpec::FusedGate::kNone;
  return block;
}

BlockSpec block_in_files(const ModelConfig& config) {
  return config.is_foreign() ? family_of(config).block : config.block;
}

std::vector<std::pair<std::string_view, Family>> foreign_classes() {
  std::vector<std::pair<std::string_view, Family>> classes;
  for (const ModelFamily& each : model_families()) {
    classes.emplace_back(each.classes, each.heads);
    if (!each.other_classes.empty()) classes.emplace_back(each.other_classes, each.heads);
  }
  return classes;
}

std::string_view foreign_class(const ModelConfig& config, Head head) {
  const ModelFamily& family = family_of(config);
  return head == Head::kCausalLm || family.other_classes.empty() ? family.classes : family.other_classes;
}

}  // namespace rf
