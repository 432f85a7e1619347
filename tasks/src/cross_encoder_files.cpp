// Files of cross-encoders (see the header). As in sentence-transformers 6, the last part of a module's name decides.
#include "cross_encoder_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "classes.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/strict_object.h"
#include "rf/tasks/cross_encoder.h"

namespace rf::tasks {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using Note = std::function<void(const std::string&)>;

constexpr const char* kModelFile = "/config_sentence_transformers.json";
constexpr const char* kTask = "sequence-classification";

// The activation of a name such as torch.nn.modules.activation.Sigmoid. sentence-transformers ignores one that is not
// torch's, unless it may run the model's own code.
std::optional<ScoreActivation> activation_of(const json& value, const std::string& where, const Note& note) {
  if (value.is_null()) return std::nullopt;
  const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
  if (!name.starts_with("torch.")) {
    if (note) {
      note(fmt::format("[{}] the activation of scores must be torch's, got {}: ignored, as sentence-transformers does",
                       where, io::printable(name)));
    }
    return std::nullopt;
  }
  const std::string last = name.substr(name.rfind('.') + 1);
  if (last == "Identity") return ScoreActivation::kIdentity;
  if (last == "Sigmoid") return ScoreActivation::kSigmoid;
  if (last == "Tanh") return ScoreActivation::kTanh;
  if (last == "ReLU") return ScoreActivation::kRelu;
  fail(where, "the activation of scores must be Identity, Sigmoid, Tanh or ReLU, got {}", io::printable(name));
}

// The one module, in the directory that is returned.
std::string read_modules(const std::string& model_dir, const std::string& where) {
  const json list = io::read_json(where);
  if (!list.is_array() || list.empty()) fail(where, "must be a list of modules, got {}", list.type_name());
  std::string encoder;
  for (const json& module : list) {
    const std::string type = module.is_object() ? module.value("type", "") : "";
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind != "Transformer" || !type.starts_with("sentence_transformers.") || list.size() > 1) {
      fail(where, "a cross-encoder must have one module, Transformer, got {} of {}", io::printable(type), list.size());
    }
    encoder = module.value("path", "");
  }
  const fs::path relative(encoder);
  if (relative.is_absolute() || std::ranges::find(relative, fs::path("..")) != relative.end()) {
    fail(where, "a module's path must lie in the model directory, got {}", io::printable(encoder));
  }
  return encoder.empty() ? model_dir : (fs::path(model_dir) / relative).string();
}

void check_transformer(const std::string& directory) {
  const std::string where = directory + "/sentence_bert_config.json";
  if (!io::has_file(where)) return;
  const json file = io::read_json(where);
  if (!file.is_object()) fail(where, "must be an object, got {}", file.type_name());
  if (const std::string task = file.value("transformer_task", std::string(kTask)); task != kTask) {
    fail(where, "transformer_task must be {}, got {}", kTask, io::printable(task));
  }
}

void read_model(const std::string& where, CrossEncoderFiles& out, const Note& note) {
  const json file = io::read_json(where);
  io::StrictObject config(file, where, "");
  // Versions up to 5 write the file for a SentenceTransformer alone, without its name.
  const std::string type = config.text("model_type", "SentenceTransformer");
  if (type != "CrossEncoder") {
    fail(where, "scores of pairs need a CrossEncoder, got a {} (roformer embed and similar read a SentenceTransformer)",
         io::printable(type));
  }
  out.is_stated = true;
  for (const char* key : {"__version__", "keep_in_fp32_modules", "prompts", "default_prompt_name"}) {
    static_cast<void>(config.find(key));
  }
  out.prompts = engine::read_prompts(where);
  if (const json* activation = config.find("activation_fn")) out.activation = activation_of(*activation, where, note);
  config.finish();
}

// The keys of versions 3 to 5, in config.json.
void read_config(const std::string& where, CrossEncoderFiles& out, const Note& note) {
  const json config = io::read_json(where);
  if (!config.is_object()) return;  // load_config refuses it
  const auto newer = config.find("sentence_transformers"), older = config.find("sbert_ce_default_activation_function");
  const bool has_newer = newer != config.end() && newer->is_object() && newer->contains("activation_fn");
  const bool has_older = older != config.end() && !older->is_null();
  if (!has_newer && !has_older) return;
  out.is_stated = true;
  if (!out.activation) out.activation = activation_of(has_newer ? newer->at("activation_fn") : *older, where, note);
}

}  // namespace

CrossEncoderFiles read_cross_encoder_files(const std::string& model_dir, const Note& note) {
  CrossEncoderFiles out;
  out.encoder_dir = model_dir;
  const std::string modules = model_dir + "/modules.json", model = model_dir + kModelFile;
  const bool has_model = io::has_file(model);
  if (io::has_file(modules)) {
    if (has_model) read_model(model, out, note);
    out.encoder_dir = read_modules(model_dir, modules);
    check_transformer(out.encoder_dir);
  } else if (has_model && note) {
    note(fmt::format("[{}] is ignored without modules.json, as sentence-transformers does", model));
  }
  if (const std::string config = out.encoder_dir + "/config.json"; io::has_file(config)) read_config(config, out, note);
  return out;
}

bool is_cross_encoder(const std::string& model_dir) {
  const std::string path = model_dir + kModelFile;
  if (!io::has_file(path)) return false;
  const json file = io::read_json(path);
  return file.is_object() && file.value("model_type", json()) == "CrossEncoder";
}

double activated(ScoreActivation activation, double logit) {
  switch (activation) {
    case ScoreActivation::kIdentity: return logit;
    case ScoreActivation::kSigmoid: return sigmoid(logit);
    case ScoreActivation::kTanh: return std::tanh(logit);
    case ScoreActivation::kRelu: return std::isnan(logit) ? logit : std::max(0.0, logit);
  }
  return logit;
}

ScoreActivation default_activation(int64_t num_labels) {
  return num_labels == 1 ? ScoreActivation::kSigmoid : ScoreActivation::kIdentity;
}

}  // namespace rf::tasks
