// Reading and writing the configuration of an encoder-decoder (translation_config.h).
#include "rf/model/translation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config_keys.h"
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

// Keys that say what a Marian is anyway, or a size that is there under another name.
constexpr std::string_view kUnreadKeys[] = {
    "architectures",        "is_encoder_decoder",   "num_hidden_layers",   "normalize_before",
    "is_decoder",           "model_type",           "classif_dropout",     "add_bias_logits",
    "add_final_layer_norm", "extra_pos_embeddings", "normalize_embedding", "static_position_embeddings"};

const EncodingConfig& marian_sinusoids() {
  static const EncodingConfig encoding{.type = "sinusoidal", .options = R"({"layout":"half"})"};
  return encoding;
}

// A setting that must have one value here.
void require_value(const json& object, std::string_view key, const json& value, std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null() || *found == value) return;
  fail(where, "{} must be {}, got {}", key, value.dump(), rf::shown(*found));
}

void read_activation(io::StrictObject& object, std::string_view where, Activation& activation) {
  const std::string name = object.text("activation_function", std::string(name_of_activation(activation)));
  const std::string known = name == "swish" ? "silu" : name;
  const std::optional<Activation> found = activation_of_name(known);
  if (!found) fail(where, "activation_function must be one that is known, as relu, gelu or swish, got {}", name);
  activation = *found;
}

void check_sizes(const TranslationConfig& c, std::string_view where) {
  for (const auto& [side, heads] :
       {std::pair{"encoder", c.encoder_attention_heads}, {"decoder", c.decoder_attention_heads}}) {
    if (c.d_model % heads != 0) {
      fail(where, "d_model must be a multiple of {}_attention_heads, got {} and {}", side, c.d_model, heads);
    }
  }
  for (const auto& [name, id] : {std::pair{"pad_token_id", c.pad_token_id},
                                 {"eos_token_id", c.eos_token_id},
                                 {"decoder_start_token_id", c.decoder_start_token_id}}) {
    if (id >= c.vocab_size) fail(where, "{} must be below the vocabulary's {}, got {}", name, c.vocab_size, id);
  }
  if (c.pad_token_id == c.eos_token_id) {
    fail(where, "pad_token_id and eos_token_id must differ, got {} twice", c.pad_token_id);
  }
}

TranslationConfig parse_translation(const json& object, const std::string& where, UnknownKeys unknown) {
  if (!object.is_object()) fail(where, "a configuration must be an object, got {}", rf::shown(object));
  const bool has_type = object.contains("model_type");
  if (has_type && !object["model_type"].is_string()) {
    fail(where, "model_type must be a name, got {}", rf::shown(object["model_type"]));
  }
  const std::string type = has_type ? object["model_type"].get<std::string>() : "";
  if (!type.empty() && type != kMarian && type != kOwnType) {
    fail(where, "model_type must be {} or {} for translation, got {}", kOwnType, kMarian, type);
  }
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
  TranslationConfig c;
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
  const auto size = [&](const char* key, int64_t& value) { value = keys.integer(key, value, 1, kLargestSize); };
  size("vocab_size", c.vocab_size);
  if (rest.contains("decoder_vocab_size")) {
    const int64_t of_decoder = keys.integer("decoder_vocab_size", c.vocab_size, 1, kLargestSize);
    if (of_decoder != c.vocab_size) {
      fail(where, "decoder_vocab_size must be vocab_size, {}, got {}", c.vocab_size, of_decoder);
    }
  }
  size("d_model", c.d_model);
  size("encoder_layers", c.encoder_layers);
  size("decoder_layers", c.decoder_layers);
  size("encoder_attention_heads", c.encoder_attention_heads);
  size("decoder_attention_heads", c.decoder_attention_heads);
  size("encoder_ffn_dim", c.encoder_ffn_dim);
  size("decoder_ffn_dim", c.decoder_ffn_dim);
  size("max_position_embeddings", c.max_position_embeddings);
  read_activation(keys, where, c.activation_function);
  const io::NumberRange fraction{0, 1, io::NumberRange::Ends::kOpenHigh};
  c.dropout = keys.number("dropout", c.dropout, fraction);
  c.attention_dropout = keys.number("attention_dropout", c.attention_dropout, fraction);
  c.init_std = keys.number("init_std", c.init_std, {0, 1e3});
  c.scale_embedding = keys.boolean("scale_embedding", c.scale_embedding);
  const auto id = [&](const char* key, int64_t& value) { value = keys.integer(key, value, 0, kLargestSize); };
  id("pad_token_id", c.pad_token_id);
  id("eos_token_id", c.eos_token_id);
  id("decoder_start_token_id", c.decoder_start_token_id);
  KeyContext context = {.where = where,
                        .unknown = unknown,
                        .hidden_size = c.d_model,
                        .heads = c.encoder_attention_heads,
                        .head_dim = c.d_model / c.encoder_attention_heads,
                        .max_position_embeddings = c.max_position_embeddings};
  context.activation = name_of_activation(c.activation_function);
  for (const std::string& key : keys.unasked()) check_unread_key(key, rest[key], context);
  check_sizes(c, where);
  return c;
}

ModelConfig side_of(const TranslationConfig& c) {
  ModelConfig side;
  side.position_encodings = c.position_encodings;
  side.vocab_size = c.vocab_size;
  side.embedding_size = side.hidden_size = c.d_model;
  side.hidden_act = c.activation_function;
  side.hidden_dropout_prob = c.dropout;
  side.attention_probs_dropout_prob = c.attention_dropout;
  side.max_position_embeddings = c.max_position_embeddings;
  side.initializer_range = c.init_std;
  side.layer_norm_eps = 1e-5;  // Marian's, which no key names
  side.pad_token_id = c.pad_token_id;
  return side;
}

}  // namespace

std::string model_type(const TranslationConfig& config) {
  return config.position_encodings == std::vector{marian_sinusoids()} ? kMarian : kOwnType;
}

std::vector<std::string_view> translation_types() { return {kMarian, kOwnType}; }

TranslationConfig parse_translation_config(const json& object) {
  return parse_translation(object, "config", UnknownKeys::kRefused);
}

TranslationConfig load_translation_config(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  check_model_type(model_dir, Opens::kTranslation);
  return parse_translation(io::read_json(path), path, UnknownKeys::kWarned);
}

json to_json(const TranslationConfig& c) {
  json object = {{"model_type", model_type(c)},
                 {"architectures", {model_type(c) == kMarian ? "MarianMTModel" : "RfTranslationModel"}},
                 {"is_encoder_decoder", true},
                 {"vocab_size", c.vocab_size},
                 {"decoder_vocab_size", c.vocab_size},
                 {"d_model", c.d_model},
                 {"encoder_layers", c.encoder_layers},
                 {"decoder_layers", c.decoder_layers},
                 {"encoder_attention_heads", c.encoder_attention_heads},
                 {"decoder_attention_heads", c.decoder_attention_heads},
                 {"encoder_ffn_dim", c.encoder_ffn_dim},
                 {"decoder_ffn_dim", c.decoder_ffn_dim},
                 {"activation_function", name_of_activation(c.activation_function)},
                 {"dropout", c.dropout},
                 {"attention_dropout", c.attention_dropout},
                 {"max_position_embeddings", c.max_position_embeddings},
                 {"init_std", c.init_std},
                 {"scale_embedding", c.scale_embedding},
                 {"share_encoder_decoder_embeddings", true},
                 {"tie_word_embeddings", true},
                 {"pad_token_id", c.pad_token_id},
                 {"eos_token_id", c.eos_token_id},
                 {"forced_eos_token_id", nullptr},
                 {"decoder_start_token_id", c.decoder_start_token_id}};
  if (model_type(c) == kOwnType) {
    json position = position_to_json(side_of(c));
    position.erase("attention");
    object.update(position);
  }
  return object;
}

ModelConfig encoder_side(const TranslationConfig& c) {
  ModelConfig side = side_of(c);
  side.num_hidden_layers = c.encoder_layers;
  side.num_attention_heads = c.encoder_attention_heads;
  side.intermediate_size = c.encoder_ffn_dim;
  return side;
}

ModelConfig decoder_side(const TranslationConfig& c) {
  ModelConfig side = side_of(c);
  side.num_hidden_layers = c.decoder_layers;
  side.num_attention_heads = c.decoder_attention_heads;
  side.intermediate_size = c.decoder_ffn_dim;
  side.is_decoder = side.add_cross_attention = true;
  return side;
}

}  // namespace rf
