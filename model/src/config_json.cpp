// config.json to a ModelConfig and back, with the keys and the order (by name) of transformers.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/config.h"
#include "rf/model/foreign_models.h"
#include "rf/model/model_types.h"

namespace rf {
namespace {

using nlohmann::json;

// Calls visit(key, member) for the keys that are read and written without conversion.
template <typename Config, typename Visit>
void for_plain_keys(Config& config, const Visit& visit) {
  visit("vocab_size", config.vocab_size);
  visit("hidden_size", config.hidden_size);
  visit("num_hidden_layers", config.num_hidden_layers);
  visit("num_attention_heads", config.num_attention_heads);
  visit("intermediate_size", config.intermediate_size);
  visit("hidden_dropout_prob", config.hidden_dropout_prob);
  visit("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  visit("max_position_embeddings", config.max_position_embeddings);
  visit("type_vocab_size", config.type_vocab_size);
  visit("initializer_range", config.initializer_range);
  visit("layer_norm_eps", config.layer_norm_eps);
  visit("is_decoder", config.is_decoder);
  visit("add_cross_attention", config.add_cross_attention);
  visit("tie_word_embeddings", config.tie_word_embeddings);
}

// The keys that ModelConfig holds.
const std::vector<std::string_view>& config_keys() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> keys = {
        // Sizes and switches.
        "embedding_size", "hidden_act", "pad_token_id", "rotary_value", "prefix_lm", "use_bias", "norm_type", "block",
        "local_attention", "global_attn_every_n_layers",
        // Heads.
        "num_labels", "id2label", "label2id", "problem_type", "summary_type", "classifier_pooling",
        "classifier_activation", "classifier_dropout", "architectures", "model_type", "family",
        // Positions and attention.
        "position_encoding", "attention", "training_positions", "rope_parameters", "rope_scaling", "rope_theta",
        "partial_rotary_factor", "original_max_position_embeddings"};
    const ModelConfig any;
    for_plain_keys(any, [&](std::string_view key, const auto&) { keys.push_back(key); });
    return keys;
  }();
  return all;
}

// Keys of the summary of multiple choice, and what they must be, besides null, where it is read.
constexpr std::pair<std::string_view, std::string_view> kSummaryKeys[] = {
    {"summary_use_proj", "false (the summary of multiple choice has no parameters)"},
    {"summary_activation", "null (the summary of multiple choice has no activation)"},
    {"summary_first_dropout", "0 (the summary of multiple choice has no dropout)"},
    {"summary_last_dropout", "0 (the summary of multiple choice has no dropout)"}};

// Typed access by key. An absent key leaves the target unchanged.
class Reader {
 public:
  Reader(const json& object, std::string_view where) : object_(object), where_(where) {}

  void read(std::string_view key, int64_t& target) const {
    const json* value = find(key, &json::is_number_integer, "an integer");
    if (value == nullptr) return;
    if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      reject(key, "an integer below 2^63", *value);
    target = value->get<int64_t>();
  }
  void read(std::string_view key, double& target) const {
    if (const json* value = find(key, &json::is_number, "a number")) target = value->get<double>();
  }
  void read(std::string_view key, bool& target) const {
    if (const json* value = find(key, &json::is_boolean, "true or false")) target = value->get<bool>();
  }
  // null reads as absent.
  void read_or_null(std::string_view key, std::string& target) const {
    if (const json* value = find(key); value == nullptr || value->is_null()) return;
    target = find(key, &json::is_string, "a string or null")->get<std::string>();
  }

  const json* find(std::string_view key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  [[noreturn]] void reject(std::string_view key, std::string_view expected, const json& value) const {
    fail(where_, "{} must be {}, got {}", key, expected, shown(value));
  }

 private:
  const json* find(std::string_view key, bool (json::*is_type)() const noexcept, std::string_view expected) const {
    const json* value = find(key);
    if (value != nullptr && !(value->*is_type)()) reject(key, expected, *value);
    return value;
  }

  const json& object_;
  std::string_view where_;
};

// Among transformers' classes, only RoFormerForMultipleChoice reads summary_type and the related keys.
bool reads_summary(const ModelConfig& config, UnknownKeys unknown) {
  if (unknown == UnknownKeys::kRefused || config.family == Family::kBert) return unknown == UnknownKeys::kRefused;
  return config.architectures.empty() || config.architectures[0].ends_with("ForMultipleChoice");
}

void check_keys(const json& object, std::string_view where, std::string_view type, UnknownKeys unknown,
                ModelConfig& config) {
  const std::vector<std::string_view>& known = config_keys();
  KeyContext context = {.where = where,
                        .unknown = unknown,
                        .causal = config.is_decoder,
                        .hidden_size = config.hidden_size,
                        .heads = config.num_attention_heads,
                        .head_dim = config.num_attention_heads > 0 ? config.head_dim() : 0,
                        .max_position_embeddings = config.max_position_embeddings,
                        .hints = known};
  context.activation = name_of_activation(config.hidden_act);
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) != known.end() || (type == "nezha" && key == kNezhaDistance)) continue;
    if (type == "nezha" && key == "use_relative_position" && value == true) continue;
    const auto* const summary = std::ranges::find(kSummaryKeys, key, [](const auto& entry) { return entry.first; });
    if (summary != std::end(kSummaryKeys)) {
      const std::string_view rule = summary->second;
      const bool fits = value.is_null() || value == json::parse(rule.substr(0, rule.find(' ')));
      if (!fits && reads_summary(config, unknown)) fail(where, "{} must be {}, got {}", key, rule, shown(value));
      continue;
    }
    check_unread_key(key, value, context);
    if (harmless_key(key) == Harmless::kKept) config.kept.emplace(key, value.dump());
  }
}

// A nezha's embedding_size is a relic that transformers 4 wrote and did not read.
void read_values(const json& object, const Reader& reader, std::string_view type, ModelConfig& config) {
  for_plain_keys(config, [&](std::string_view key, auto& member) { reader.read(key, member); });
  config.embedding_size = config.hidden_size;
  if (type != "nezha" && object.contains("embedding_size") && !object["embedding_size"].is_null())
    reader.read("embedding_size", config.embedding_size);
  // null: no row of the embedding is that of padding, which is masked in any case.
  if (const json* pad = reader.find("pad_token_id"); pad == nullptr || !pad->is_null())
    reader.read("pad_token_id", config.pad_token_id);
  reader.read("rotary_value", config.rotary_value);
  reader.read("prefix_lm", config.prefix_lm);
  if (const json* value = reader.find("classifier_dropout"); value != nullptr && !value->is_null())
    reader.read("classifier_dropout", config.classifier_dropout.emplace());
}

// use_bias and norm_type, which turn a roformer into a RoFormerV2 and otherwise must agree with the family.
void read_simplifications(const Reader& reader, std::string_view where, std::string_view type, ModelConfig& config) {
  bool use_bias = config.block.qkv_bias;
  reader.read("use_bias", use_bias);
  std::string norm = std::string(norm_name(config.block.norm));
  reader.read_or_null("norm_type", norm);
  if (norm != norm_name(NormKind::kLayer) && norm != norm_name(NormKind::kRms))
    fail(where, "norm_type must be \"layer_norm\" or \"rms_norm\", got {}", shown(json(norm)));
  const bool may_choose = type == "roformer" || (type.empty() && reader.find("family") == nullptr);
  if (may_choose && !use_bias && norm == norm_name(NormKind::kRms)) config.family = Family::kRoFormerV2;
  config.block = block_of(config.family);
  if (use_bias == config.block.qkv_bias && norm == norm_name(config.block.norm)) return;
  fail(where,
       "use_bias and norm_type must be true and \"layer_norm\", or in a RoFormerV2 false and \"rms_norm\", got {} and "
       "{} in the family {}",
       use_bias, shown(json(norm)), family_name(config.family));
}

constexpr std::string_view kModernBlock = "modernbert";
constexpr int64_t kModernWindow = 128, kModernInterval = 3;

// block, and the keys of its windows, with the values of ModernBERT where they are absent.
void read_block(const Reader& reader, std::string_view type, ModelConfig& config) {
  const json* const block = reader.find("block");
  const json* const window = reader.find("local_attention");
  const json* const interval = reader.find("global_attn_every_n_layers");
  if (block == nullptr || block->is_null()) {
    if (window != nullptr) reader.reject("local_attention", "absent without \"block\": \"modernbert\"", *window);
    if (interval != nullptr)
      reader.reject("global_attn_every_n_layers", "absent without \"block\": \"modernbert\"", *interval);
    return;
  }
  if (*block != kModernBlock) reader.reject("block", "\"modernbert\" or absent", *block);
  if (!type.empty() && type != "rf_encoder") reader.reject("block", "left to a model_type of rf_encoder", *block);
  if (config.family == Family::kRoFormerV2) reader.reject("block", "absent in the family roformer_v2", *block);
  for (const char* key : {"add_cross_attention", "prefix_lm", "use_bias"}) {
    const json* const value = reader.find(key);
    if (value != nullptr && *value == true) reader.reject(key, "false with \"block\": \"modernbert\"", *value);
  }
  config.block = modernbert_block();
  config.final_norm = true;
  int64_t width = kModernWindow, every = kModernInterval;
  if (window == nullptr || !window->is_null()) reader.read("local_attention", width);
  reader.read("global_attn_every_n_layers", every);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (width < 2 || width > kMost) reader.reject("local_attention", "null or in [2, 2^30]", *window);
  if (every < 1 || every > kMost) reader.reject("global_attn_every_n_layers", "in [1, 2^30]", *interval);
  if (window != nullptr && window->is_null()) return;
  if (config.num_hidden_layers < 1 || config.num_hidden_layers > kMaxLayers) return;  // check_config() refuses it
  config.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  for (size_t i = 0; i < config.layers.size(); ++i)
    config.layers[i].window = static_cast<int64_t>(i) % every == 0 ? 0 : width / 2;
}

// Returns the model_type, "" if it is absent; sets the family and the defaults that depend on it.
std::string read_type(const Reader& reader, std::string_view where, ModelConfig& config) {
  std::string type;
  reader.read_or_null("model_type", type);
  const std::optional<Family> of_type = family_of_name(type);
  if (!type.empty() && !of_type && type != "nezha" && type != "rf_encoder")
    refuse_model_type(where, json(type), Opens::kEncoders);
  config.family = type == "nezha" ? Family::kBert : of_type.value_or(Family::kRoFormer);
  if (const json* family = reader.find("family")) {
    const auto found = family->is_string() ? family_of_name(family->get<std::string>()) : std::nullopt;
    if (!found) reader.reject("family", "\"roformer\", \"bert\" or \"roformer_v2\"", *family);
    if (!type.empty() && type != "rf_encoder") reader.reject("family", "left to a model_type of rf_encoder", *family);
    config.family = *found;
  }
  config.block = block_of(config.family);
  if (config.family == Family::kRoFormerV2) config.hidden_act = Activation::kRelu;
  read_simplifications(reader, where, type, config);
  if (config.family == Family::kBert) {
    config.vocab_size = type == "nezha" ? 21128 : 30522;
    config.max_position_embeddings = 512;
  }
  if (type == "nezha") config.classifier_dropout = 0.1;
  return type;
}

void read_architectures(const Reader& reader, ModelConfig& config) {
  const json* const value = reader.find("architectures");
  if (value == nullptr || value->is_null()) return;
  if (!value->is_array()) reader.reject("architectures", "a list of class names", *value);
  for (const json& name : *value) {
    if (!name.is_string()) reader.reject("architectures", "a list of class names", *value);
    config.architectures.push_back(name.get<std::string>());
  }
}

void read_words(const Reader& reader, UnknownKeys unknown, ModelConfig& config) {
  if (const json* value = reader.find("hidden_act")) {
    const auto activation = value->is_string() ? activation_of_name(value->get<std::string>()) : std::nullopt;
    if (!activation)
      reader.reject("hidden_act", "one of gelu, gelu_new, gelu_pytorch_tanh, relu, relu2, silu, swish, tanh", *value);
    config.hidden_act = *activation;
  }
  reader.read_or_null("problem_type", config.problem_type);
  reader.read_or_null("classifier_pooling", config.classifier_pooling);
  reader.read_or_null("classifier_activation", config.classifier_activation);
  read_architectures(reader, config);
  const json* const summary = reader.find("summary_type");
  const bool is_known = summary != nullptr && (*summary == "first" || *summary == "last");
  if (reads_summary(config, unknown) || (is_known && config.family != Family::kBert))
    reader.read_or_null("summary_type", config.summary_type);
}

std::string default_label(int64_t id) { return fmt::format("LABEL_{}", id); }

std::string label_of(const ModelConfig& config, int64_t id) {
  return config.id2label.empty() ? default_label(id) : config.id2label.at(id);
}

void read_id2label(const json& map, const Reader& reader, ModelConfig& config) {
  const char* const expected = "an object that names the labels \"0\" to \"n-1\"";
  if (!map.is_object() || map.empty()) reader.reject("id2label", expected, map);
  bool all_default = true;
  for (int64_t id = 0; id < static_cast<int64_t>(map.size()); ++id) {
    const auto label = map.find(std::to_string(id));
    if (label == map.end() || !label->is_string()) reader.reject("id2label", expected, map);
    all_default = all_default && *label == default_label(id);
    config.id2label[id] = label->get<std::string>();
  }
  config.num_labels = static_cast<int64_t>(map.size());
  if (all_default) config.id2label.clear();
}

void read_labels(const Reader& reader, std::string_view where, ModelConfig& config) {
  reader.read("num_labels", config.num_labels);
  const int64_t declared = config.num_labels;
  const json* const id2label = reader.find("id2label");
  if (id2label != nullptr && !id2label->is_null()) {
    read_id2label(*id2label, reader, config);
    if (reader.find("num_labels") != nullptr && declared != config.num_labels)
      fail(where, "num_labels must be the size of id2label, {}, got {}", config.num_labels, declared);
  }
  const json* const label2id = reader.find("label2id");
  if (label2id == nullptr || label2id->is_null()) return;
  if (!label2id->is_object()) reader.reject("label2id", "an object from labels to ids", *label2id);
  json inverse = json::object(), defaults = json::object();
  for (int64_t id = 0; id < config.num_labels; ++id) {
    inverse[label_of(config, id)] = id;
    defaults[default_label(id)] = id;
  }
  // transformers reads id2label, and leaves the default in place when a program changes that alone.
  if (*label2id == defaults) return;
  for (const auto& [label, id] : label2id->items()) {
    if (inverse.value(label, json()) != id)
      fail(where, "label2id must invert id2label, got {}: {}", shown(json(label)), shown(id));
  }
}

ModelConfig parse(const json& object, std::string_view where, UnknownKeys unknown) {
  if (!object.is_object()) fail(where, "must be a JSON object, got {}", shown(object));
  ModelConfig config;
  const Reader reader(object, where);
  const std::string type = read_type(reader, where, config);
  read_values(object, reader, type, config);
  read_block(reader, type, config);
  read_words(reader, unknown, config);
  check_keys(object, where, type, unknown, config);
  read_labels(reader, where, config);
  read_position(object, where, type, config);
  check_config(config, where);
  check_type(config, where, type);
  return config;
}

void add_labels(const ModelConfig& config, json& object) {
  // transformers omits the default, two labels called LABEL_0 and LABEL_1.
  if (config.id2label.empty() && config.num_labels == ModelConfig{}.num_labels) return;
  json id2label = json::object(), label2id = json::object();
  for (int64_t id = 0; id < config.num_labels; ++id) {
    const std::string label = label_of(config, id);
    id2label[std::to_string(id)] = label;
    label2id[label] = id;
  }
  object["id2label"] = std::move(id2label);
  object["label2id"] = std::move(label2id);
}

}  // namespace

void read_foreign_head(const json& object, std::string_view where, ModelConfig& config) {
  const Reader reader(object, where);
  reader.read_or_null("problem_type", config.problem_type);
  read_architectures(reader, config);
  read_labels(reader, where, config);
}

ModelConfig parse_config(const json& object) {
  if (is_foreign_encoder(object)) return parse_foreign_config(object, "config");
  return parse(object, "config", UnknownKeys::kRefused);
}

ModelConfig load_config(const std::string& model_dir) {
  check_model_type(model_dir, Opens::kEncoders);
  const std::string path = model_dir + "/config.json";
  const json object = io::read_json(path);
  if (!is_foreign_encoder(object)) return parse(object, path, UnknownKeys::kWarned);
  ModelConfig config = parse_foreign_config(object, path);
  read_stored_frequencies(model_dir, config);
  return config;
}

namespace {

// The file of another library, with what training changes in it. Throws Error for changes that it cannot hold.
json foreign_json(const ModelConfig& config) {
  json object = io::parse_json(config.foreign_config.text, "config");
  for (const char* key : {"id2label", "label2id", "num_labels", "problem_type"}) object.erase(key);
  add_labels(config, object);
  if (!config.problem_type.empty()) object["problem_type"] = config.problem_type;
  object["architectures"] = config.architectures;
  object["vocab_size"] = config.vocab_size;
  object["dtype"] = "float32";
  object.erase("torch_dtype");
  ModelConfig written = parse_foreign_config(object, "config");
  if (written.tie_word_embeddings != config.tie_word_embeddings) {  // the file stores another head
    object["tie_word_embeddings"] = config.tie_word_embeddings;
    written = parse_foreign_config(object, "config");
  }
  if (written.pad_token_id != config.pad_token_id || written.classifier_pooling != config.classifier_pooling) {
    object["pad_token_id"] = config.pad_token_id;
    object.erase("clf_pooling");
    const bool calls_it_bos = config.foreign_type == "eurobert" && config.classifier_pooling == "cls";
    object["classifier_pooling"] = calls_it_bos ? "bos" : config.classifier_pooling;
    written = parse_foreign_config(object, "config");
  }
  written.block.fused_qkv = config.block.fused_qkv;
  written.block.fused_gate = config.block.fused_gate;
  written.problems = config.problems;  // which name the file
  if (!stored_frequencies(config, Head::kNone).empty()) written.position_encodings = config.position_encodings;
  if (written != config) {
    fail("config",
         "of a {}, training may change the head, its labels, problem_type, vocab_size and, where the family has the "
         "key, classifier_pooling, got another change, such as of the position encoding or is_decoder, which its "
         "config.json cannot hold",
         config.foreign_type);
  }
  return object;
}

}  // namespace

json to_json(const ModelConfig& config) {
  if (config.is_foreign()) return foreign_json(config);
  if (config.decoder) return translation_json(config);
  check_config(config, "config");
  json object = {{"model_type", model_type(config)},
                 {"dtype", "float32"},
                 {"hidden_act", name_of_activation(config.hidden_act)},
                 {"pad_token_id", config.pad_token_id}};
  for_plain_keys(config, [&](const char* key, const auto& member) { object[key] = member; });
  if (config.family != Family::kBert) object["embedding_size"] = config.embedding_size;
  if (config.family != Family::kBert || config.rotary_value) object["rotary_value"] = config.rotary_value;
  if (config.family == Family::kRoFormerV2) {
    object["use_bias"] = config.block.qkv_bias;
    object["norm_type"] = norm_name(config.block.norm);
  }
  if (object["model_type"] == "rf_encoder") {
    object["family"] = family_name(config.family);
    object.update(position_to_json(config));
  }
  if (config.prefix_lm) object["prefix_lm"] = true;
  if (config.block == modernbert_block()) {
    object["block"] = kModernBlock;
    object["local_attention"] = nullptr;
    if (!config.layers.empty()) {
      const auto next = std::find_if(config.layers.begin() + 1, config.layers.end(),
                                     [](const LayerSpec& layer) { return layer.window == 0; });
      const auto slides = std::ranges::find_if(config.layers, [](const LayerSpec& layer) { return layer.window > 0; });
      object["local_attention"] = slides == config.layers.end() ? kModernWindow : 2 * slides->window;
      object["global_attn_every_n_layers"] = next - config.layers.begin();
    }
  }
  add_labels(config, object);
  if (!config.problem_type.empty()) object["problem_type"] = config.problem_type;
  if (config.summary_type != ModelConfig{}.summary_type) object["summary_type"] = config.summary_type;
  if (config.classifier_pooling != ModelConfig{}.classifier_pooling)
    object["classifier_pooling"] = config.classifier_pooling;
  if (!config.classifier_activation.empty()) object["classifier_activation"] = config.classifier_activation;
  if (config.classifier_dropout) object["classifier_dropout"] = *config.classifier_dropout;
  if (!config.architectures.empty()) object["architectures"] = config.architectures;
  for (const auto& [key, text] : config.kept) {
    if (harmless_key(key) != Harmless::kKept) fail("config", "kept keys must be harmless ones, got {}", key);
    object[key] = io::parse_json(text, "config: " + key);
  }
  return object;
}

void save_config(const ModelConfig& config, const std::string& model_dir) {
  constexpr int kIndent = 2;
  io::write_file(model_dir + "/config.json", to_json(config).dump(kIndent) + "\n");
}

}  // namespace rf
