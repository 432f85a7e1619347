// Files of sentence-transformers, versions 2 to 6 (see the header), and their prompts (rf/engine/embedder.h). Names of
// modules have changed with the versions: "sentence_transformers.models.Pooling" and
// "sentence_transformers.sentence_transformer.modules.pooling.Pooling" are one, so the last part of a name decides.
#include "sentence_modules.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/safetensors.h"
#include "rf/io/strict_object.h"
#include "rf/io/warning.h"
#include "weights.h"

namespace rf::engine {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kModules = "modules.json";
constexpr const char* kModel = "config_sentence_transformers.json";
constexpr const char* kEmbedding = "sentence_embedding";  // what modules after pooling read and write
constexpr int64_t kMaxFeatures = int64_t{1} << 20;
constexpr int64_t kMaxLength = int64_t{1} << 31;

// In the order in which sentence-transformers concatenates the poolings that old files switch on separately.
struct PoolingName {
  const char* old_key;
  const char* name;
  std::optional<Pooling> pooling;  // absent: not supported
};
constexpr PoolingName kPoolings[] = {
    {"pooling_mode_cls_token", "cls", Pooling::kCls},
    {"pooling_mode_max_tokens", "max", Pooling::kMax},
    {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::kMeanSqrtLen},
    {"pooling_mode_weightedmean_tokens", "weightedmean", std::nullopt},
    {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast}};

struct Module {
  std::string kind, directory;
};

// A key that nobody knows is a warning, as in config.json.
void finish(const io::StrictObject& config, const json& file, const std::string& where) {
  constexpr size_t kShown = 120;
  for (const std::string& key : config.unasked()) {
    io::warn(where, "keys must be known, and one that is not is ignored, got {}: {}", io::printable(key),
             io::escaped(file[key].dump(), kShown));
  }
}

json read(const std::string& path, SentenceModules& out) {
  out.files.push_back(path);
  return io::read_json(path);
}

// A folder of the model directory, as modules.json names it.
std::string folder_of(const std::string& model_dir, const std::string& path, const std::string& where) {
  const fs::path relative(path);
  for (const fs::path& part : relative) {
    if (relative.is_absolute() || part == "..")
      fail(where, "a module's path must lie in the model directory, got {}", io::printable(path));
  }
  return path.empty() ? model_dir : (fs::path(model_dir) / relative).string();
}

std::vector<Module> read_module_list(const std::string& model_dir, const json& list, const std::string& where) {
  if (!list.is_array() || list.empty()) fail(where, "must be a list of modules, got {}", list.type_name());
  std::vector<Module> modules;
  for (size_t i = 0; i < list.size(); ++i) {
    io::StrictObject entry(list[i], where, fmt::format("[{}]", i));
    entry.require({"path", "type"});
    static_cast<void>(entry.find("idx"));
    static_cast<void>(entry.find("name"));
    if (const json* arguments = entry.find("kwargs"); arguments != nullptr && !arguments->empty())
      fail(where, "[{}].kwargs must be empty, got {}", i, arguments->dump());
    const std::string type = entry.text("type", "");
    entry.finish();
    if (!type.starts_with("sentence_transformers.")) {
      fail(where, "[{}].type must be a module of sentence-transformers, got {} (a class of the model's own code)", i,
           io::printable(type));
    }
    modules.push_back({type.substr(type.rfind('.') + 1), folder_of(model_dir, entry.text("path", ""), where)});
  }
  return modules;
}

Pooling pooling_of(const std::string& name, const std::string& where) {
  for (const PoolingName& known : kPoolings) {
    if (name == known.name && known.pooling) return *known.pooling;
  }
  fail(where, "the pooling mode must be cls, max, mean, mean_sqrt_len_tokens or lasttoken, got {}",
       io::printable(name));
}

std::vector<Pooling> poolings_of(io::StrictObject& config, const std::string& where) {
  std::vector<Pooling> old;
  for (const PoolingName& known : kPoolings) {
    if (config.boolean(known.old_key, false)) old.push_back(pooling_of(known.name, where));
  }
  const json* mode = config.find("pooling_mode");
  if (mode == nullptr) return old.empty() ? std::vector{Pooling::kMean} : old;
  std::vector<Pooling> poolings;
  for (const json& name : mode->is_array() ? *mode : json::array({*mode})) {
    if (!name.is_string()) fail(where, "pooling_mode must be a name or a list of names, got {}", mode->dump());
    poolings.push_back(pooling_of(name.get<std::string>(), where));
  }
  if (poolings.empty()) fail(where, "pooling_mode must name at least one, got none");
  return poolings;
}

void read_pooling(const std::string& directory, SentenceModules& out) {
  const std::string where = directory + "/config.json";
  const json file = read(where, out);
  io::StrictObject config(file, where, "");
  static_cast<void>(config.integer("word_embedding_dimension", 1, 1, kMaxFeatures));
  static_cast<void>(config.integer("embedding_dimension", 1, 1, kMaxFeatures));
  out.poolings = poolings_of(config, where);
  const bool included = config.boolean("include_prompt", true);
  out.pooled_prompt = included ? SentenceModules::PooledPrompt::kIncluded : SentenceModules::PooledPrompt::kLeftOut;
  finish(config, file, where);
}

// Modules after pooling work on the vectors of texts.
void check_names(io::StrictObject& config, const std::string& where) {
  for (const char* key : {"module_input_name", "module_output_name"}) {
    const json* name = config.find(key);
    if (name == nullptr || name->is_null() || *name == kEmbedding) continue;
    fail(where, "{} must be {}, got {}", key, kEmbedding, name->dump());
  }
}

std::optional<Activation> activation_of(const std::string& name, const std::string& where) {
  if (name == "torch.nn.modules.linear.Identity") return std::nullopt;
  if (name == "torch.nn.modules.activation.Tanh") return Activation::kTanh;
  if (name == "torch.nn.modules.activation.ReLU") return Activation::kRelu;
  if (name == "torch.nn.modules.activation.GELU") return Activation::kGelu;
  if (name == "torch.nn.modules.activation.SiLU") return Activation::kSilu;
  fail(where,
       "activation_function must be torch.nn.modules.linear.Identity or Tanh, ReLU, GELU or SiLU of "
       "torch.nn.modules.activation, got {}",
       io::printable(name));
}

std::vector<float> read_tensor(const io::SafetensorsFile& file, const std::string& where, const std::string& name,
                               const std::vector<int64_t>& shape) {
  const io::TensorView* tensor = file.find(name);
  if (tensor == nullptr) fail(where, "the layer must have {}, got none", name);
  if (tensor->shape != shape)
    fail(where, "{} must have the shape ({}), got ({})", name, fmt::join(shape, ", "), fmt::join(tensor->shape, ", "));
  return finite_elements(*tensor);
}

SentenceStep read_dense(const std::string& directory, SentenceModules& out) {
  const std::string where = directory + "/config.json";
  const json file = read(where, out);
  io::StrictObject config(file, where, "");
  config.require({"in_features", "out_features"});
  const int64_t in = config.integer("in_features", 1, 1, kMaxFeatures);
  const int64_t width = config.integer("out_features", 1, 1, kMaxFeatures);
  const bool bias = config.boolean("bias", true);
  const bool residual = config.boolean("use_residual", false);
  SentenceStep step{.kind = SentenceStep::Kind::kDense};
  step.activation = activation_of(config.text("activation_function", "torch.nn.modules.activation.Tanh"), where);
  check_names(config, where);
  finish(config, file, where);

  const std::string path = directory + "/model.safetensors";
  if (!io::has_file(path) && io::has_file(directory + "/pytorch_model.bin")) {
    fail(directory,
         "weights must be in model.safetensors, got pytorch_model.bin (python -m roformer_cpp.convert converts the "
         "whole model)");
  }
  const io::SafetensorsFile weights(path);
  out.files.push_back(path);
  std::set<std::string> known{"linear.weight"};
  const std::vector<float> matrix = read_tensor(weights, path, "linear.weight", {width, in});
  std::vector<float> offset;
  if (bias) offset = read_tensor(weights, path, *known.insert("linear.bias").first, {width});
  step.dense = Linear(Precision::kFloat32, in, width, matrix.data(), std::move(offset));
  if (residual) step.residual = in == width ? SentenceStep::Residual::kInput : SentenceStep::Residual::kProjected;
  if (step.residual == SentenceStep::Residual::kProjected) {
    const std::vector<float> through = read_tensor(weights, path, *known.insert("residual.weight").first, {width, in});
    step.residual_projection = Linear(Precision::kFloat32, in, width, through.data(), {});
  }
  for (const io::TensorView& tensor : weights.tensors()) {
    if (!known.contains(tensor.name)) fail(path, "the layer must have no other tensors, got {}", tensor.name);
  }
  return step;
}

SentenceStep read_normalize(const std::string& directory, SentenceModules& out) {
  const std::string where = directory + "/config.json";
  if (io::has_file(where)) {
    const json file = read(where, out);
    io::StrictObject config(file, where, "");
    check_names(config, where);
    finish(config, file, where);
  }
  return {.kind = SentenceStep::Kind::kNormalize};
}

// sentence_bert_config.json, which lies with the encoder.
void read_transformer(const std::string& directory, SentenceModules& out) {
  out.encoder_dir = directory;
  const std::string where = directory + "/sentence_bert_config.json";
  if (!io::has_file(where)) return;
  const json file = read(where, out);
  io::StrictObject config(file, where, "");
  if (const json* length = config.find("max_seq_length"); length != nullptr && !length->is_null())
    out.max_length = config.integer("max_seq_length", 1, 1, kMaxLength);
  out.lower_case = config.boolean("do_lower_case", false);
  const std::string task = config.text("transformer_task", "feature-extraction");
  if (task != "feature-extraction")
    fail(where, "transformer_task must be feature-extraction, got {}", io::printable(task));
  if (const json* modality = config.find("modality_config")) {
    const json text = {{"method", "forward"}, {"method_output_name", "last_hidden_state"}};
    if (!modality->is_object() || !modality->contains("text") || modality->at("text") != text)
      fail(where, "modality_config.text must be {}, got {}", text.dump(), modality->dump());
  }
  const std::string output = config.text("module_output_name", "token_embeddings");
  if (output != "token_embeddings")
    fail(where, "module_output_name must be token_embeddings, got {}", io::printable(output));
  finish(config, file, where);
}

void read_model(const std::string& model_dir, SentenceModules& out) {
  const std::string where = fmt::format("{}/{}", model_dir, kModel);
  if (!io::has_file(where)) return;
  const json file = read(where, out);
  io::StrictObject config(file, where, "");
  for (const char* key : {"__version__", "prompts", "default_prompt_name"}) static_cast<void>(config.find(key));
  const std::string type = config.text("model_type", "SentenceTransformer");
  if (type != "SentenceTransformer") {
    fail(where, "vectors need a SentenceTransformer, got a {}{}", io::printable(type),
         type == "CrossEncoder" ? " (roformer rerank and predict read it)" : "");
  }
  out.prompts = read_prompts(where);
  if (const json* name = config.find("similarity_fn_name"); name != nullptr && !name->is_null()) {
    out.similarity = config.choice<Similarity>("similarity_fn_name", Similarity::kCosine,
                                               {{"cosine", Similarity::kCosine},
                                                {"dot", Similarity::kDot},
                                                {"euclidean", Similarity::kEuclidean},
                                                {"manhattan", Similarity::kManhattan}});
  }
  if (const json* size = config.find("truncate_dim"); size != nullptr && !size->is_null())
    out.dimensions = config.integer("truncate_dim", 1, 1, kMaxFeatures);
  finish(config, file, where);
}

}  // namespace

SentenceModules read_sentence_modules(const std::string& model_dir) {
  SentenceModules out;
  out.encoder_dir = model_dir;
  const std::string where = fmt::format("{}/{}", model_dir, kModules);
  if (!io::has_file(where)) return out;
  read_model(model_dir, out);  // first, because another kind of model has other modules
  const std::vector<Module> modules = read_module_list(model_dir, read(where, out), where);
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto& [kind, directory] = modules[i];
    if ((kind == "Transformer") != (i == 0) || (kind == "Pooling") != (i == 1)) {
      fail(where, "the modules must be Transformer, Pooling, and then Dense or Normalize, got {} as number {}",
           io::printable(kind), i + 1);
    }
    if (kind == "Transformer") {
      read_transformer(directory, out);
    } else if (kind == "Pooling") {
      read_pooling(directory, out);
    } else if (kind == "Dense") {
      out.steps.push_back(read_dense(directory, out));
    } else if (kind == "Normalize") {
      out.steps.push_back(read_normalize(directory, out));
    } else if (kind != "Dropout") {  // which does nothing outside training
      fail(where, "the modules after Pooling must be Dense or Normalize, got {}", io::printable(kind));
    }
  }
  if (modules.size() < 2) fail(where, "the modules must be Transformer and Pooling, got {} of them", modules.size());
  return out;
}

Prompts read_prompts(const std::string& path) {
  const nlohmann::json file = io::read_json(path);
  io::StrictObject config(file, path, "");
  Prompts prompts;
  if (const auto* given = config.find("prompts"); given != nullptr && !given->is_null()) {
    if (!given->is_object()) fail(path, "prompts must be an object, got {}", given->dump());
    for (const auto& [name, prompt] : given->items()) {
      if (!prompt.is_string()) fail(path, "prompts.{} must be a text, got {}", name, prompt.dump());
      prompts.by_name[name] = prompt.get<std::string>();
    }
  }
  if (const auto* name = config.find("default_prompt_name"); name != nullptr && !name->is_null()) {
    prompts.default_name = config.text("default_prompt_name", "");
    if (!prompts.by_name.contains(*prompts.default_name))
      fail(path, "default_prompt_name must be one of the prompts, got {}", io::printable(*prompts.default_name));
  }
  return prompts;
}

std::string prompt_of(const Prompts& prompts, const std::optional<std::string>& text,
                      const std::optional<std::string>& name, std::string_view where) {
  if (text && name) fail<ArgumentError>(where, "a prompt must be given as text or by name, got both");
  if (text) return *text;
  const std::optional<std::string>& chosen = name ? name : prompts.default_name;
  if (!chosen) return "";
  if (const auto found = prompts.by_name.find(*chosen); found != prompts.by_name.end()) return found->second;
  std::vector<std::string_view> known;
  for (const auto& [each, _] : prompts.by_name) known.push_back(each);
  fail<ArgumentError>(where, "the prompt must be one of the model's ({}), got {}",
                      known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), io::printable(*chosen));
}

}  // namespace rf::engine
