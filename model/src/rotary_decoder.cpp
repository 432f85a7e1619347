// Decoders of other families (rotary_decoder.h): their sizes, the rotation by rotary_report.h, and their tensors.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/model/model_types.h"
#include "rf/model/rotary_decoder.h"
#include "rf/model/rotary_report.h"
#include "rotary_report/parts.h"

namespace rf {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kMaxDecoderExtent = int64_t{1} << 24, kMaxDecoderLayers = int64_t{1} << 12;
constexpr auto kOpenLow = io::NumberRange::Ends::kOpenLow;
constexpr io::NumberRange kEpsRange = {0, 1, kOpenLow};

struct KnownDecoder {
  std::string_view model_type, gguf, architecture;  // gguf: general.architecture
  DecoderLayout layout;
  // What the configuration class has for keys that are absent, where that is not none; keys that are null are none.
  // The table of the report has max_position_embeddings.
  std::string_view defaults;
  std::vector<std::string_view> keys;  // that the class reads besides kSharedKeys
};
const std::vector<KnownDecoder>& decoders() {
  static const std::vector<KnownDecoder> all = {
      {"llama",
       "llama",
       "LlamaForCausalLM",
       DecoderLayout::kLlama,
       R"({"eos_token_id": 2})",
       {"num_key_value_heads", "rms_norm_eps", "head_dim", "attention_bias", "mlp_bias"}},
      {"mistral",
       "",
       "MistralForCausalLM",
       DecoderLayout::kLlama,
       R"({"eos_token_id": 2, "num_key_value_heads": 8, "sliding_window": 4096})",
       {"num_key_value_heads", "rms_norm_eps", "head_dim", "sliding_window", "use_sliding_window"}},
      {"qwen2",
       "qwen2",
       "Qwen2ForCausalLM",
       DecoderLayout::kLlama,
       R"({"num_key_value_heads": 32, "sliding_window": 4096})",
       {"num_key_value_heads", "rms_norm_eps", "head_dim", "sliding_window", "use_sliding_window", "layer_types",
        "attention_bias"}},
      {"gpt_neox",
       "gptneox",
       "GPTNeoXForCausalLM",
       DecoderLayout::kGptNeox,
       R"({"eos_token_id": 2})",
       {"layer_norm_eps", "use_parallel_residual", "attention_bias", "rotary_pct", "rotary_emb_base"}},
  };
  return all;
}
// rope_theta counts in GPT-NeoX too where it is inside a dictionary; the report tells what is not read.
constexpr std::string_view kSharedKeys[] = {
    "model_type",          "architectures",           "vocab_size",      "hidden_size",
    "num_hidden_layers",   "num_attention_heads",     "hidden_act",      "intermediate_size",
    "tie_word_embeddings", "max_position_embeddings", "rope_parameters", "rope_scaling",
    "rope_theta",          "partial_rotary_factor",   "type_vocab_size", "original_max_position_embeddings"};

std::string known_names(std::string_view KnownDecoder::*name) {
  std::string names;
  for (const KnownDecoder& each : decoders()) {
    if ((each.*name).empty()) continue;
    names += names.empty() ? "" : ", ";
    names += each.*name;
  }
  return names;
}

const KnownDecoder* find_decoder(std::string_view KnownDecoder::*name, std::string_view value) {
  const auto found = std::ranges::find(decoders(), value, name);
  return value.empty() || found == decoders().end() ? nullptr : &*found;
}

// A number that must be there.
int64_t extent(const Keys& keys, const std::string& name, int64_t most = kMaxDecoderExtent) {
  const int64_t value = keys.integer({name.c_str()}, 1, most);
  if (value == 0) fail(keys.file(), "{} must be given, got none", name);
  return value;
}

void check_heads(const DecoderConfig& config) {
  if (config.heads % config.key_heads != 0)
    fail(config.path, "query heads must be a multiple of key heads, got {} and {}", config.heads, config.key_heads);
}

// The rotation of all layers out of the report.
void read_rotation(const RotaryReport& report, DecoderConfig& config) {
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kProblem) config.problems.push_back(finding.text);
  }
  const bool one = report.rotations.size() == 1 && report.rotations[0].spec && report.rotations[0].layout;
  if (!one || !report.unrotated_layers.empty()) {
    fail(config.path, "all layers must have one rotation that is known, got {}; roformer doctor shows it",
         !one ? fmt::format("{} of scaling {}", report.rotations.size(),
                            report.rotations.empty() ? "none" : report.rotations[0].scaling)
              : fmt::format("{} layers without rotation", report.unrotated_layers.size()));
  }
  config.head_dim = report.head_size;
  config.rotary.spec = *report.rotations[0].spec;
  config.rotary.layout = *report.rotations[0].layout;
}

void add_stop_ids(const json& value, const std::string& where, DecoderConfig& config) {
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (id.is_null()) continue;
    if (!id.is_number_integer() || id < 0 || id >= config.vocab_size)
      fail(where, "eos_token_id must be a token from 0 to {}, got {}", config.vocab_size - 1, shown(id));
    config.stop_ids.push_back(id.get<int32_t>());
  }
}

// generation_config.json has precedence, as in transformers.
void read_stop_ids(const json& object, const fs::path& dir, DecoderConfig& config) {
  const std::string generation = dir / "generation_config.json";
  if (io::has_file(generation)) {
    const json given = io::read_json(generation);
    if (given.is_object() && given.contains("eos_token_id"))
      return add_stop_ids(given["eos_token_id"], generation, config);
  }
  if (object.contains("eos_token_id")) add_stop_ids(object["eos_token_id"], config.path, config);
}

// Layers with a window: all of a Mistral, and those of a Qwen2 that layer_types names, or max_window_layers (28).
bool has_windows(const json& object, const Keys& keys, const DecoderConfig& config) {
  if (config.model_type != "qwen2") return config.model_type == "mistral";
  if (!keys.boolean("use_sliding_window", false)) return false;
  if (const json* types = keys.list("layer_types"); types != nullptr)
    return std::ranges::find(*types, json("sliding_attention")) != types->end();
  constexpr int64_t kFullLayers = 28;
  return config.layers > (given(object, "max_window_layers") == nullptr
                              ? kFullLayers
                              : keys.integer({"max_window_layers"}, 0, kMaxDecoderLayers));
}

void check_window(const json& object, const Keys& keys, const DecoderConfig& config) {
  const json* window = given(object, "sliding_window");
  if (window == nullptr || !has_windows(object, keys, config)) return;
  if (!window->is_number_integer() || *window < config.max_position_embeddings) {
    fail(config.path,
         "sliding_window must be null or at least max_position_embeddings, {}, since windows are not computed, got {} "
         "({} has a window of 4096 where the key is absent)",
         config.max_position_embeddings, shown(*window), config.model_type);
  }
}

// The file, with what the class has for keys that are absent. A default that the other values exclude is left out:
// nothing is then said of it.
json with_defaults(json object, const KnownDecoder& known, const fs::path& dir) {
  const json defaults = io::parse_json(known.defaults, "defaults");
  for (const auto& [key, value] : defaults.items()) {
    const bool stops = key == "eos_token_id";
    if (stops &&
        (io::has_file((dir / "generation_config.json").string()) || value >= object.value("vocab_size", json(0))))
      continue;
    if (!object.contains(key)) object[key] = value;
  }
  return object;
}

void check_unread_keys(const json& object, const KnownDecoder& known, const DecoderConfig& config) {
  std::vector<std::string_view> read(std::begin(kSharedKeys), std::end(kSharedKeys));
  read.insert(read.end(), known.keys.begin(), known.keys.end());
  KeyContext context = {.where = config.path,
                        .causal = true,
                        .hidden_size = config.hidden_size,
                        .heads = config.heads,
                        .head_dim = config.head_dim,
                        .max_position_embeddings = config.max_position_embeddings,
                        .rope_base = config.rotary.spec.theta,
                        .hints = read};
  context.activation = name_of_activation(config.activation);
  for (const auto& [key, value] : object.items()) {
    const bool spare = key == "is_decoder";  // a causal class does not read it
    if (!spare && std::ranges::find(read, key) == read.end()) check_unread_key(key, value, context);
  }
}

json config_json(const std::string& model_dir) {
  const std::string path = (fs::path(model_dir) / "config.json").string();
  json object = io::read_json(path);
  if (!object.is_object()) fail(path, "the file must be an object, got {}", shown(object));
  return object;
}

void read_biases(const Keys& keys, DecoderConfig& config) {
  const bool neox = config.layout == DecoderLayout::kGptNeox;
  const bool attention = keys.boolean("attention_bias", neox) && config.model_type != "mistral";
  config.qkv_bias = attention || config.model_type == "qwen2";
  config.output_bias = attention && config.model_type != "qwen2";
  config.mlp_bias = neox || (config.model_type == "llama" && keys.boolean("mlp_bias", false));
}

enum class Parts { kWeight, kWeightAndBias };

class TensorList {
 public:
  explicit TensorList(const DecoderConfig& config) : config_(config), neox_(config.layout == DecoderLayout::kGptNeox) {}

  std::vector<DecoderTensor> all() {
    const int64_t width = config_.hidden_size;
    add("token_embd", neox_ ? "gpt_neox.embed_in" : "model.embed_tokens", {config_.vocab_size, width}, Parts::kWeight);
    for (int64_t i = 0; i < config_.layers; ++i) add_layer(i);
    add("output_norm", neox_ ? "gpt_neox.final_layer_norm" : "model.norm", {width}, norm_parts());
    const std::vector<std::string> heads = decoder_head_names(config_.layout);
    if (config_.tied_embeddings) {
      // One tensor under either name.
      tensors_.front().file_names.insert(tensors_.front().file_names.end(), heads.begin(), heads.end());
      return std::move(tensors_);
    }
    tensors_.push_back({.name = "output.weight", .file_names = heads, .shape = {config_.vocab_size, width}});
    return std::move(tensors_);
  }

 private:
  void add_layer(int64_t layer) {
    gguf_ = fmt::format("blk.{}.", layer);
    file_ = fmt::format("{}.layers.{}.", neox_ ? "gpt_neox" : "model", layer);
    const int64_t width = config_.hidden_size, queries = config_.query_width(), keys = config_.key_width(),
                  inner = config_.intermediate_size;
    const Parts qkv = parts(config_.qkv_bias), out = parts(config_.output_bias), mlp = parts(config_.mlp_bias);
    add("attn_norm", "input_layernorm", {width}, norm_parts());
    if (neox_) {
      add("attn_qkv", "attention.query_key_value", {queries + 2 * keys, width}, qkv);
      add("attn_output", "attention.dense", {width, queries}, out);
    } else {
      add("attn_q", "self_attn.q_proj", {queries, width}, qkv);
      add("attn_k", "self_attn.k_proj", {keys, width}, qkv);
      add("attn_v", "self_attn.v_proj", {keys, width}, qkv);
      add("attn_output", "self_attn.o_proj", {width, queries}, out);
    }
    add("ffn_norm", "post_attention_layernorm", {width}, norm_parts());
    if (!neox_) add("ffn_gate", "mlp.gate_proj", {inner, width}, mlp);
    add("ffn_up", neox_ ? "mlp.dense_h_to_4h" : "mlp.up_proj", {inner, width}, mlp);
    add("ffn_down", neox_ ? "mlp.dense_4h_to_h" : "mlp.down_proj", {width, inner}, mlp);
    gguf_.clear();
    file_.clear();
  }

  static Parts parts(bool bias) { return bias ? Parts::kWeightAndBias : Parts::kWeight; }
  Parts norm_parts() const { return parts(neox_); }

  void add(std::string_view name, std::string_view file_name, std::vector<int64_t> shape, Parts parts) {
    const int64_t rows = shape[0];
    add_part(name, file_name, "weight", std::move(shape));
    if (parts == Parts::kWeightAndBias) add_part(name, file_name, "bias", {rows});
  }
  void add_part(std::string_view name, std::string_view file_name, std::string_view part, std::vector<int64_t> shape) {
    tensors_.push_back({.name = fmt::format("{}{}.{}", gguf_, name, part),
                        .file_names = {fmt::format("{}{}.{}", file_, file_name, part)},
                        .shape = std::move(shape)});
  }

  const DecoderConfig& config_;
  const bool neox_;
  std::string gguf_, file_;  // what the names of a layer begin with
  std::vector<DecoderTensor> tensors_;
};

}  // namespace

std::optional<std::string> gguf_path(const std::string& path) {
  if (!fs::is_directory(path)) return io::has_file(path) ? std::optional(path) : std::nullopt;
  if (io::has_file(fs::path(path) / "config.json")) return std::nullopt;
  const std::vector<fs::path> found = gguf_files(path);
  if (found.size() > 1) {
    const bool parts = std::ranges::all_of(
        found, [](const fs::path& file) { return file.string().find("-of-0") != std::string::npos; });
    fail("model", "a directory without config.json must hold one .gguf file, got {} in {}{}", found.size(), path,
         parts ? "; llama.cpp's `llama-gguf-split --merge` joins the parts of a model" : "");
  }
  return found.empty() ? std::nullopt : std::optional(found[0].string());
}

bool is_rotary_decoder(const std::string& path) {
  if (gguf_path(path)) return true;
  if (!io::has_file((fs::path(path) / "config.json").string())) return false;  // load_config says so
  const json object = config_json(path);
  const json* type = given(object, "model_type");
  return type != nullptr && type->is_string() &&
         find_decoder(&KnownDecoder::model_type, type->get<std::string>()) != nullptr;
}

std::vector<std::string_view> decoder_types() {
  std::vector<std::string_view> types;
  for (const KnownDecoder& each : decoders()) types.push_back(each.model_type);
  return types;
}

DecoderConfig read_decoder_config(const std::string& model_dir) {
  const json file = config_json(model_dir);
  DecoderConfig config;
  config.path = (fs::path(model_dir) / "config.json").string();
  const std::string type = Keys(file, config.path, "").text("model_type");
  const KnownDecoder* known = find_decoder(&KnownDecoder::model_type, type);
  if (known == nullptr)
    fail(config.path, "model_type must be {}, got {}", known_names(&KnownDecoder::model_type), io::printable(type));
  const json object = with_defaults(file, *known, model_dir);
  const Keys keys(object, config.path, "");
  if (const json* quantized = given(object, "quantization_config"); quantized != nullptr)
    fail(config.path, "weights must not be quantised (quantization_config), got {}", shown(*quantized));
  config.layout = known->layout;
  config.model_type = known->model_type;
  config.architecture = known->architecture;
  const bool neox = config.layout == DecoderLayout::kGptNeox;
  config.vocab_size = extent(keys, "vocab_size");
  config.hidden_size = extent(keys, "hidden_size");
  config.layers = extent(keys, "num_hidden_layers", kMaxDecoderLayers);
  config.heads = extent(keys, "num_attention_heads");
  config.intermediate_size = extent(keys, "intermediate_size");
  config.key_heads = neox ? 0 : keys.integer({"num_key_value_heads"}, 1, kMaxDecoderExtent);
  if (config.key_heads == 0) config.key_heads = config.heads;
  check_heads(config);
  config.norm_eps = keys.number(neox ? "layer_norm_eps" : "rms_norm_eps", neox ? 1e-5 : 1e-6, kEpsRange);
  const std::string act = keys.text("hidden_act");
  const std::optional<Activation> activation = activation_of_name(act.empty() ? (neox ? "gelu" : "silu") : act);
  if (!activation)
    fail(config.path, "hidden_act must be gelu, gelu_new, relu, silu or tanh, got {}", io::printable(act));
  if (!neox && *activation != Activation::kSilu)
    fail(config.path, "hidden_act of a Llama must be silu, got {}", io::printable(act));
  config.activation = *activation;
  config.tied_embeddings = keys.boolean("tie_word_embeddings", false);
  config.parallel_residual = neox && keys.boolean("use_parallel_residual", true);
  config.fused_rows = FusedRows::kHeads;
  read_biases(keys, config);
  const RotaryReport report = rotary_report(model_dir);
  config.max_position_embeddings = report.length;
  check_window(object, keys, config);
  read_rotation(report, config);
  if (report.length == 0 && config.rotary.spec.changes_with_length())
    fail(config.path, "max_position_embeddings must be a number, because the rotation depends on it, got null");
  check_unread_keys(file, *known, config);
  read_stop_ids(object, model_dir, config);
  return config;
}

DecoderConfig read_decoder_config(const std::string& path, const io::GgufFile& file) {
  DecoderConfig config;
  config.path = path;
  file.check_whole();
  const Keys keys(file.metadata(), config.path, "");
  const std::string type = keys.text("general.architecture");
  const KnownDecoder* known = find_decoder(&KnownDecoder::gguf, type);
  if (known == nullptr) {
    fail(path, "general.architecture must be {}, whose blocks this program has, got {}",
         known_names(&KnownDecoder::gguf), type.empty() ? "none" : io::printable(type));
  }
  const auto key = [&](const char* name) { return fmt::format("{}.{}", type, name); };
  if (const int64_t experts = keys.integer({key("expert_count").c_str()}, 0, kMaxDecoderExtent); experts > 0)
    fail(path, "the model must have no experts, got {} {}", key("expert_count"), experts);
  if (!keys.boolean(key("attention.causal").c_str(), true))
    fail(path, "{} must be true for a decoder, got false", key("attention.causal"));
  config.layout = known->layout;
  config.model_type = type;
  config.architecture = known->architecture;
  const bool neox = config.layout == DecoderLayout::kGptNeox;
  const RotaryReport report = rotary_report(path);
  const io::GgufTensor* const embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    fail(path, "the file must have a matrix token_embd.weight, got {}",
         embedding == nullptr ? "none" : "another shape");
  }
  config.vocab_size = static_cast<int64_t>(std::min<uint64_t>(embedding->shape[1], kMaxDecoderExtent));
  config.hidden_size = extent(keys, key("embedding_length"));
  config.layers = extent(keys, key("block_count"), kMaxDecoderLayers);
  config.intermediate_size = extent(keys, key("feed_forward_length"));
  config.max_position_embeddings = report.length;
  config.heads = report.heads;
  config.key_heads = report.kv_heads == 0 ? report.heads : report.kv_heads;
  if (config.heads == 0) fail(path, "{} must be one number for all layers, got none", key("attention.head_count"));
  check_heads(config);
  config.norm_eps = keys.number(key(neox ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon").c_str(),
                                1e-5, kEpsRange);
  config.activation = neox ? Activation::kGelu : Activation::kSilu;
  config.tied_embeddings = file.find("output.weight") == nullptr;
  config.parallel_residual = neox && keys.boolean(key("use_parallel_residual").c_str(), true);
  config.qkv_bias = file.find(neox ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias") != nullptr;
  config.output_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_down.bias") != nullptr;
  read_rotation(report, config);
  for (const int32_t id : io::gguf_end_tokens(file)) {
    if (id >= config.vocab_size) {
      fail(path, "a token that ends texts must have one of the {} rows of token_embd.weight, got token {}",
           config.vocab_size, id);
    }
    config.stop_ids.push_back(id);
  }
  return config;
}

std::vector<DecoderTensor> decoder_tensors(const DecoderConfig& config) { return TensorList(config).all(); }

std::vector<std::string> decoder_head_names(DecoderLayout layout) {
  if (layout == DecoderLayout::kGptNeox) return {"embed_out.weight", "lm_head.weight"};
  return {"lm_head.weight"};
}

bool is_decoder_buffer(const std::string& name) {
  constexpr const char* kBuffers[] = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"};
  return std::ranges::any_of(kBuffers, [&](const char* buffer) { return name.ends_with(buffer); });
}

}  // namespace rf
