// Reading and writing the configuration of an encoder-decoder, and its tensors with Marian's names
// (translation_config.h).
#include "rf/model/translation_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "families/family.h"
#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/strict_object.h"
#include "rf/model/model_types.h"

namespace rf {
namespace {

using nlohmann::json;

constexpr const char* kMarian = "marian";
constexpr const char* kOwnType = "rf_translation";
constexpr int64_t kLargestSize = int64_t{1} << 30;

// Keys that repeat what holds for every Marian, or repeat a size under another name.
constexpr std::string_view kUnreadKeys[] = {
    "architectures",        "is_encoder_decoder",   "num_hidden_layers",   "normalize_before",
    "is_decoder",           "model_type",           "classif_dropout",     "add_bias_logits",
    "add_final_layer_norm", "extra_pos_embeddings", "normalize_embedding", "static_position_embeddings"};

const EncodingConfig& marian_sinusoids() {
  static const EncodingConfig encoding{.type = "sinusoidal", .options = R"({"layout":"half"})"};
  return encoding;
}

// Calls visit(key, member) for the sizes, and for the ids of tokens.
template <typename Config, typename Visit>
void for_sizes(Config& c, const Visit& visit) {
  visit("vocab_size", c.vocab_size);
  visit("d_model", c.hidden_size);
  visit("encoder_layers", c.num_hidden_layers);
  visit("decoder_layers", c.decoder->layers);
  visit("encoder_attention_heads", c.num_attention_heads);
  visit("decoder_attention_heads", c.decoder->heads);
  visit("encoder_ffn_dim", c.intermediate_size);
  visit("decoder_ffn_dim", c.decoder->intermediate_size);
  visit("max_position_embeddings", c.max_position_embeddings);
}
template <typename Config, typename Visit>
void for_ids(Config& c, const Visit& visit) {
  visit("pad_token_id", c.pad_token_id);
  visit("eos_token_id", c.decoder->eos_token_id);
  visit("decoder_start_token_id", c.decoder->start_token_id);
}

// A setting that must have one value here.
void require_value(const json& object, std::string_view key, const json& value, std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null() || *found == value) return;
  fail(where, "{} must be {}, got {}", key, value.dump(), rf::shown(*found));
}

void read_activation(io::StrictObject& object, std::string_view where, Activation& activation) {
  const std::string name = object.text("activation_function", std::string(name_of_activation(activation)));
  const std::optional<Activation> found = activation_of_name(name);
  if (!found) fail(where, "activation_function must be a known one, such as relu, gelu or swish, got {}", name);
  activation = *found;
}

void check_sizes(const ModelConfig& c, std::string_view where) {
  for (const auto& [side, heads] : {std::pair{"encoder", c.num_attention_heads}, {"decoder", c.decoder->heads}}) {
    if (c.hidden_size % heads != 0)
      fail(where, "d_model must be a multiple of {}_attention_heads, got {} and {}", side, c.hidden_size, heads);
  }
  for_ids(c, [&](const char* name, int64_t id) {
    if (id >= c.vocab_size) fail(where, "{} must be below the vocabulary's {}, got {}", name, c.vocab_size, id);
  });
  if (c.pad_token_id == c.decoder->eos_token_id)
    fail(where, "pad_token_id and eos_token_id must differ, got {} twice", c.pad_token_id);
}

ModelConfig parse_translation(const json& object, const std::string& where, UnknownKeys unknown) {
  if (!object.is_object()) fail(where, "a configuration must be an object, got {}", rf::shown(object));
  const bool has_type = object.contains("model_type");
  if (has_type && !object["model_type"].is_string())
    fail(where, "model_type must be a name, got {}", rf::shown(object["model_type"]));
  const std::string type = has_type ? object["model_type"].get<std::string>() : "";
  if (!type.empty() && type != kMarian && type != kOwnType)
    fail(where, "model_type must be {} or {} for translation, got {}", kOwnType, kMarian, type);
  json position = json::object(), rest = json::object();
  for (const auto& [key, value] : object.items()) {
    if (type == kMarian && is_neutral_rotation(key, value)) continue;
    const bool is_position = key == "position_encoding" || key.starts_with("rope_");
    if (is_position) {
      position[key] = value;
    } else if (std::ranges::find(kUnreadKeys, key) == std::end(kUnreadKeys)) {
      rest[key] = value;
    }
  }
  for (const auto& [key, value] : {std::pair<const char*, json>{"share_encoder_decoder_embeddings", true},
                                   {"tie_word_embeddings", true},
                                   {"activation_dropout", 0.0},
                                   {"encoder_layerdrop", 0.0},
                                   {"decoder_layerdrop", 0.0}}) {
    require_value(rest, key, value, where);
    rest.erase(key);
  }
  ModelConfig c = translation_defaults();
  ModelConfig of_position;
  read_position(position, where, kOwnType, of_position);
  c.position_encodings = of_position.position_encodings;
  if (type == kMarian) {
    if (!position.empty()) {
      fail(where, "model_type marian must have no {}, got {}; rf_translation may", position.begin().key(),
           rf::shown(position.front()));
    }
    c.position_encodings = {marian_sinusoids()};
  }
  io::StrictObject keys(rest, where, "");
  if (type == kMarian) {
    keys.require({"vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads",
                  "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "activation_function",
                  "scale_embedding", "pad_token_id", "eos_token_id", "decoder_start_token_id"});
  }
  for_sizes(c, [&](const char* key, int64_t& value) { value = keys.integer(key, value, 1, kLargestSize); });
  if (rest.contains("decoder_vocab_size")) {
    const int64_t of_decoder = keys.integer("decoder_vocab_size", c.vocab_size, 1, kLargestSize);
    if (of_decoder != c.vocab_size)
      fail(where, "decoder_vocab_size must be vocab_size, {}, got {}", c.vocab_size, of_decoder);
  }
  read_activation(keys, where, c.hidden_act);
  const io::NumberRange fraction{0, 1, io::NumberRange::Ends::kOpenHigh};
  c.hidden_dropout_prob = keys.number("dropout", c.hidden_dropout_prob, fraction);
  c.attention_probs_dropout_prob = keys.number("attention_dropout", c.attention_probs_dropout_prob, fraction);
  c.initializer_range = keys.number("init_std", c.initializer_range, {0, 1e3});
  const bool scales = keys.boolean("scale_embedding", true);
  for_ids(c, [&](const char* key, int64_t& value) { value = keys.integer(key, value, 0, kLargestSize); });
  KeyContext context = {.where = where,
                        .unknown = unknown,
                        .hidden_size = c.hidden_size,
                        .heads = c.num_attention_heads,
                        .head_dim = c.hidden_size / c.num_attention_heads,
                        .max_position_embeddings = c.max_position_embeddings};
  context.activation = name_of_activation(c.hidden_act);
  for (const std::string& key : keys.unasked()) check_unread_key(key, rest[key], context);
  check_sizes(c, where);
  c.embedding_size = c.hidden_size;
  c.embedding_scale = scales ? std::sqrt(static_cast<double>(c.hidden_size)) : 1;
  return c;
}

constexpr ModuleName kMarianModules[] = {
    {"encoder.layer.{}.attention.self.query", "layers.{}.self_attn.q_proj", ""},
    {"encoder.layer.{}.attention.self.key", "layers.{}.self_attn.k_proj", ""},
    {"encoder.layer.{}.attention.self.value", "layers.{}.self_attn.v_proj", ""},
    {"encoder.layer.{}.attention.output.dense", "layers.{}.self_attn.out_proj", ""},
    {"encoder.layer.{}.attention.output.LayerNorm", "layers.{}.self_attn_layer_norm", ""},
    {"encoder.layer.{}.crossattention.self.query", "layers.{}.encoder_attn.q_proj", ""},
    {"encoder.layer.{}.crossattention.self.key", "layers.{}.encoder_attn.k_proj", ""},
    {"encoder.layer.{}.crossattention.self.value", "layers.{}.encoder_attn.v_proj", ""},
    {"encoder.layer.{}.crossattention.output.dense", "layers.{}.encoder_attn.out_proj", ""},
    {"encoder.layer.{}.crossattention.output.LayerNorm", "layers.{}.encoder_attn_layer_norm", ""},
    {"encoder.layer.{}.intermediate.dense", "layers.{}.fc1", ""},
    {"encoder.layer.{}.output.dense", "layers.{}.fc2", ""},
    {"encoder.layer.{}.output.LayerNorm", "layers.{}.final_layer_norm", ""},
};

// The weights of a side's layers, with their names in the file.
std::vector<std::pair<WeightSpec, std::string>> layer_weights(const ModelConfig& config, TranslationSide side) {
  const char* const prefix = side == TranslationSide::kDecoder ? "model.decoder." : "model.encoder.";
  std::vector<std::pair<WeightSpec, std::string>> weights;
  for (WeightSpec& spec : weight_specs(side_of(config, side), Head::kNone)) {
    const std::string in_file = renamed(kMarianModules, &ModuleName::module, &ModuleName::in_file, spec.name);
    if (!in_file.empty()) weights.emplace_back(std::move(spec), prefix + in_file);
  }
  return weights;
}

}  // namespace

std::string_view translation_type(const ModelConfig& config) {
  return config.position_encodings == std::vector{marian_sinusoids()} ? kMarian : kOwnType;
}

ModelConfig translation_defaults() {
  ModelConfig c;
  c.vocab_size = 37000;
  c.embedding_size = c.hidden_size = 512;
  c.num_hidden_layers = 6;
  c.num_attention_heads = 8;
  c.intermediate_size = 2048;
  c.hidden_act = Activation::kRelu;
  c.attention_probs_dropout_prob = 0;
  c.max_position_embeddings = 1024;
  c.layer_norm_eps = 1e-5;  // Marian's, which no key names
  c.type_vocab_size = 0;
  c.embedding_norm = false;
  c.embedding_scale = std::sqrt(512.0);
  c.decoder.emplace();
  return c;
}

std::vector<std::string_view> translation_types() { return {kMarian, kOwnType}; }

ModelConfig parse_translation_config(const json& object) {
  return parse_translation(object, "config", UnknownKeys::kRefused);
}

ModelConfig load_translation_config(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  check_model_type(model_dir, Opens::kTranslation);
  return parse_translation(io::read_json(path), path, UnknownKeys::kWarned);
}

json translation_json(const ModelConfig& c) {
  json object = {{"model_type", translation_type(c)},
                 {"architectures", {translation_type(c) == kMarian ? "MarianMTModel" : "RfTranslationModel"}},
                 {"is_encoder_decoder", true},
                 {"decoder_vocab_size", c.vocab_size},
                 {"activation_function", name_of_activation(c.hidden_act)},
                 {"dropout", c.hidden_dropout_prob},
                 {"attention_dropout", c.attention_probs_dropout_prob},
                 {"init_std", c.initializer_range},
                 {"scale_embedding", c.embedding_scale != 1},
                 {"share_encoder_decoder_embeddings", true},
                 {"tie_word_embeddings", true},
                 {"forced_eos_token_id", nullptr}};
  const auto write = [&](const char* key, int64_t value) { object[key] = value; };
  for_sizes(c, write);
  for_ids(c, write);
  if (translation_type(c) == kOwnType) {
    json position = position_to_json(c);
    position.erase("attention");
    object.update(position);
  }
  return object;
}

ModelConfig side_of(const ModelConfig& config, TranslationSide which) {
  ModelConfig side = config;
  side.decoder.reset();
  if (which == TranslationSide::kEncoder) return side;
  side.num_hidden_layers = config.decoder->layers;
  side.num_attention_heads = config.decoder->heads;
  side.intermediate_size = config.decoder->intermediate_size;
  side.is_decoder = side.add_cross_attention = true;
  return side;
}

std::vector<WeightSpec> translation_weight_specs(const ModelConfig& config) {
  std::vector<WeightSpec> specs = {
      {kSharedEmbedding, {config.vocab_size, config.hidden_size}, WeightRole::kEmbedding},
      {kOutputBias, {1, config.vocab_size}, WeightRole::kBuffer},
  };
  for (const TranslationSide side : {TranslationSide::kEncoder, TranslationSide::kDecoder}) {
    for (auto& [spec, in_file] : layer_weights(config, side)) specs.push_back({in_file, spec.shape, spec.role});
  }
  return specs;
}

std::vector<BodyName> body_names(const ModelConfig& config, TranslationSide side) {
  std::vector<BodyName> names = {{"embeddings.word_embeddings.weight", kSharedEmbedding}};
  for (auto& [spec, in_file] : layer_weights(config, side)) names.push_back({spec.name, in_file});
  return names;
}

}  // namespace rf
