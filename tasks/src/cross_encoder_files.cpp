// Files of cross-encoders (see the header). As in sentence-transformers 6, the last part of a module's name decides.
#include "cross_encoder_files.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "classes.h"
#include "model_task.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/strict_object.h"
#include "rf/model/foreign_models.h"
#include "rf/tasks/cross_encoder.h"

namespace rf::tasks {

namespace {

using nlohmann::json;
using Note = std::function<void(const std::string&)>;

constexpr const char* kModelFile = "/config_sentence_transformers.json";
constexpr const char* kTask = "sequence-classification";
constexpr const char* kGeneration = "text-generation";
constexpr const char* kLogitScore = "LogitScore";

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

void read_score(const std::string& directory, CrossEncoderFiles& out) {
  const std::string where = directory + "/config.json";
  const json file = io::read_json(where);
  io::StrictObject config(file, where, "");
  config.require({"true_token_id"});
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  TokenScore score{.yes = config.integer("true_token_id", 0, 0, kMostTokens), .no = {}};
  if (const json* no = config.find("false_token_id"); no != nullptr && !no->is_null())
    score.no = config.integer("false_token_id", 0, 0, kMostTokens);
  const std::string input = config.text("module_input_name", "causal_logits");
  if (input != "causal_logits") fail(where, "module_input_name must be causal_logits, got {}", io::printable(input));
  config.finish();
  out.score = score;
}

// Transformer, whose directory is the encoder's, and for a language model LogitScore.
void read_modules(const std::string& model_dir, const std::string& where, CrossEncoderFiles& out) {
  const std::vector<engine::Module> modules = engine::read_module_list(model_dir);
  for (size_t i = 0; i < modules.size(); ++i) {
    if (i > 1 || modules[i].kind != (i == 0 ? "Transformer" : kLogitScore)) {
      fail(where,
           "a cross-encoder must have one module, Transformer, or with a language model {} after it, got {} of {}",
           kLogitScore, io::printable(modules[i].kind), modules.size());
    }
    if (i == 1) read_score(modules[i].directory, out);
  }
  out.encoder_dir = modules[0].directory;
}

// Whether pairs are messages of a chat: `modality_config` decides, or without it whether the tokenizer has a template.
bool reads_messages(const json& file, const std::string& where, bool has_template) {
  const auto modality = file.find("modality_config");
  if (modality == file.end() || modality->is_null()) return has_template;
  if (!modality->is_object()) fail(where, "modality_config must be an object, got {}", modality->dump());
  const auto message = modality->find("message");
  if (message == modality->end()) return false;
  const std::string format = io::StrictObject(*message, where, "modality_config.message").text("format", "flat");
  if (format != "flat") fail(where, "modality_config.message.format must be flat, got {}", io::printable(format));
  return true;
}

// sentence_bert_config.json, which lies with the encoder.
void read_transformer(bool has_modules, CrossEncoderFiles& out) {
  const std::string where = out.encoder_dir + "/sentence_bert_config.json";
  const json file = has_modules && io::has_file(where) ? io::read_json(where) : json::object();
  const std::string wanted = out.score || out.generates ? kGeneration : kTask;
  io::StrictObject config(file, where, "");
  if (const json* length = config.find("max_seq_length"); length != nullptr && !length->is_null())
    out.max_length = config.integer("max_seq_length", 1, 1, kMaxRowTokens);
  if (config.boolean("do_lower_case", false))
    fail(where, "do_lower_case must be absent or false in a cross-encoder, got true");
  if (const std::string task = config.text("transformer_task", wanted); task != wanted)
    fail(where, "transformer_task must be {}, got {}", wanted, io::printable(task));
  if (const auto more = file.find("processing_kwargs"); more != file.end() && !more->is_null() && !more->empty())
    fail(where, "processing_kwargs must be absent or empty, got {}", io::shown(*more));
  out.chat_template = text::read_chat_template(out.encoder_dir);
  const bool messages = reads_messages(file, where, out.chat_template.has_value());
  if (messages && !out.chat_template) fail(out.encoder_dir, "pairs that are messages need a chat template, got none");
  if (!messages) out.chat_template.reset();
  out.generates = wanted == kGeneration;
}

// Without modules.json, the class of the model decides, as in sentence-transformers.
bool is_language_model(const std::string& directory) {
  if (!is_foreign_decoder(directory)) return false;
  return load_any_config(directory).head() == Head::kCausalLm;
}

void read_model(const std::string& where, CrossEncoderFiles& out, const Note& note) {
  const json file = io::read_json(where);
  io::StrictObject config(file, where, "");
  // Versions up to 5 write the file for a SentenceTransformer alone, without its name.
  const std::string type = config.text("model_type", "SentenceTransformer");
  if (type != "CrossEncoder") {
    fail(where, "scores of pairs need a CrossEncoder, got a {}{}", io::printable(type),
         type == "SentenceTransformer"  ? " (roformer embed and similar read it)"
         : type == "SparseEncoder"      ? " (roformer embed --sparse reads it)"
         : type == "MultiVectorEncoder" ? " (roformer rerank and embed --multi read it)"
                                        : "");
  }
  out.is_stated = true;
  for (const char* key : {"__version__", "keep_in_fp32_modules"}) static_cast<void>(config.find(key));
  out.prompts = engine::read_prompts(config, where);
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
    read_modules(model_dir, modules, out);
  } else {
    out.generates = is_language_model(model_dir);
    if (has_model && note)
      note(fmt::format("[{}] is ignored without modules.json, as sentence-transformers does", model));
  }
  read_transformer(io::has_file(modules), out);
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
