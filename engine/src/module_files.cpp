// Modules of sentence-transformers, versions 2 to 6 (see the header).
#include "module_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/npy.h"
#include "rf/io/printable.h"
#include "rf/io/safetensors.h"
#include "rf/io/warning.h"
#include "weights.h"

namespace rf::engine {

namespace {

using nlohmann::json;

// In the order in which sentence-transformers concatenates the poolings that old files switch on separately.
struct PoolingName {
  const char* old_key;
  const char* name;
  Pooling pooling;
};
constexpr PoolingName kPoolings[] = {
    {"pooling_mode_cls_token", "cls", Pooling::kCls},
    {"pooling_mode_max_tokens", "max", Pooling::kMax},
    {"pooling_mode_mean_tokens", "mean", Pooling::kMean},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::kMeanSqrtLen},
    {"pooling_mode_weightedmean_tokens", "weightedmean", Pooling::kWeightedMean},
    {"pooling_mode_lasttoken", "lasttoken", Pooling::kLast}};

Pooling pooling_of(const std::string& name, const std::string& where) {
  for (const PoolingName& known : kPoolings) {
    if (name == known.name) return known.pooling;
  }
  fail(where, "the pooling mode must be cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken, got {}",
       io::printable(name));
}

std::vector<Pooling> poolings_of(ModuleConfig& config) {
  const std::string& where = config.where;
  std::vector<Pooling> old;
  for (const PoolingName& known : kPoolings) {
    if (config.boolean(known.old_key, false)) old.push_back(known.pooling);
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

// Checks the names of a module's input and output, if given. Older files of late interaction do not name them.
void check_names(ModuleConfig& config, const std::string& level) {
  for (const char* key : {"module_input_name", "module_output_name"}) {
    if (const json* name = find_value(config, key); name != nullptr && *name != level)
      fail(config.where, "{} must be {}, got {}", key, level, name->dump());
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

// The file of a module's weights.
std::string weights_of(const std::string& directory, SentenceModules& out) {
  std::string path = directory + "/model.safetensors";
  if (!io::has_file(path) && io::has_file(directory + "/pytorch_model.bin")) {
    fail(directory,
         "weights must be in model.safetensors, got pytorch_model.bin (python -m roformer_cpp.convert converts the "
         "whole model)");
  }
  if (directory != out.encoder_dir) out.files.push_back(path);
  return path;
}

// The roles whose texts a module processes, if it does not process all texts.
void read_tasks(ModuleConfig& config, const char* key, bool& queries, bool& documents) {
  const json* tasks = find_value(config, key);
  if (tasks == nullptr) return;
  const std::vector<std::string> roles =
      read_words(tasks->is_string() ? json::array({*tasks}) : *tasks, key, config.where);
  queries = std::ranges::find(roles, "query") != roles.end();
  documents = std::ranges::find(roles, "document") != roles.end();
}

void check_others(const io::SafetensorsFile& weights, const std::set<std::string>& known, const std::string& path) {
  for (const io::TensorView& tensor : weights.tensors()) {
    if (!known.contains(tensor.name))
      fail(path, "the layer must have no other tensors, got {}", io::printable(tensor.name));
  }
}

}  // namespace

json read_noted(const std::string& path, SentenceModules& out) {
  out.files.push_back(path);
  return io::read_json(path);
}

const json* find_value(io::StrictObject& config, const std::string& key) {
  const json* value = config.find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void read_count(io::StrictObject& config, const std::string& key, int64_t most, int64_t& to) {
  if (find_value(config, key) != nullptr) to = config.integer(key, 1, 1, most);
}

void finish(const ModuleConfig& config) {
  for (const std::string& key : config.unasked()) {
    io::warn(config.where, "keys must be known, and one that is not is ignored, got {}: {}", io::printable(key),
             io::shown(config.contents[key]));
  }
}

void read_pooling(const std::string& directory, SentenceModules& out) {
  ModuleConfig config(directory + "/config.json", out);
  static_cast<void>(config.integer("word_embedding_dimension", 1, 1, kMaxFeatures));
  static_cast<void>(config.integer("embedding_dimension", 1, 1, kMaxFeatures));
  out.poolings = poolings_of(config);
  const bool included = config.boolean("include_prompt", true);
  out.pooled_prompt = included ? SentenceModules::PooledPrompt::kIncluded : SentenceModules::PooledPrompt::kLeftOut;
  finish(config);
}

SentenceStep read_dense(const std::string& directory, const std::string& level, SentenceModules& out) {
  ModuleConfig config(directory + "/config.json", out);
  config.require({"in_features", "out_features"});
  const int64_t in = config.integer("in_features", 1, 1, kMaxFeatures);
  const int64_t width = config.integer("out_features", 1, 1, kMaxFeatures);
  const bool bias = config.boolean("bias", true);
  const bool residual = config.boolean("use_residual", false);
  SentenceStep step{.kind = SentenceStep::Kind::kDense};
  step.activation = activation_of(config.text("activation_function", "torch.nn.modules.activation.Tanh"), config.where);
  check_names(config, level);
  finish(config);

  const std::string path = weights_of(directory, out);
  const io::SafetensorsFile weights(path);
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
  check_others(weights, known, path);
  return step;
}

SentenceStep read_normalize(const std::string& directory, const std::string& level, SentenceModules& out) {
  const std::string path = directory + "/config.json";
  if (io::has_file(path) || level != kTextLevel) {  // without the file, it reads vectors of texts
    ModuleConfig config(path, out);
    check_names(config, level);
    finish(config);
  }
  return {.kind = SentenceStep::Kind::kNormalize};
}

void read_transformer(const std::string& directory, const std::string& task, SentenceModules& out) {
  out.encoder_dir = directory;
  const std::string path = directory + "/sentence_bert_config.json";
  if (!io::has_file(path)) return;
  ModuleConfig config(path, out);
  read_count(config, "max_seq_length", kMaxTextLength, out.max_length);
  read_count(config, "query_length", kMaxTextLength, out.tokens.query_length);
  read_count(config, "document_length", kMaxTextLength, out.tokens.document_length);
  if (const json* expansion = config.find("query_expansion"))
    out.tokens.expansion = read_query_expansion(*expansion, config.where);
  if (out.tokens.expansion && out.tokens.query_length > 0 && out.tokens.query_length < out.tokens.expansion->length) {
    fail(config.where, "query_length must be at least the {} tokens of query_expansion, got {}",
         out.tokens.expansion->length, out.tokens.query_length);
  }
  out.lower_case = config.boolean("do_lower_case", false);
  const std::string given = config.text("transformer_task", task);
  if (given != task) fail(config.where, "transformer_task must be {}, got {}", task, io::printable(given));
  if (const json* modality = config.find("modality_config")) {
    const bool is_head = task == "fill-mask";
    const json text = {{"method", "forward"}, {"method_output_name", is_head ? "logits" : "last_hidden_state"}};
    if (!modality->is_object() || !modality->contains("text") || modality->at("text") != text)
      fail(config.where, "modality_config.text must be {}, got {}", text.dump(), modality->dump());
  }
  const std::string output = config.text("module_output_name", kTokenLevel);
  if (output != kTokenLevel)
    fail(config.where, "module_output_name must be {}, got {}", kTokenLevel, io::printable(output));
  finish(config);
}

SentenceStep read_layer_norm(const std::string& directory, SentenceModules& out) {
  ModuleConfig config(directory + "/config.json", out);
  config.require({"dimension"});
  const int64_t width = config.integer("dimension", 1, 1, kMaxFeatures);
  finish(config);
  const std::string path = weights_of(directory, out);
  const io::SafetensorsFile weights(path);
  check_others(weights, {"norm.weight", "norm.bias"}, path);
  constexpr double kEpsilon = 1e-5;  // of torch.nn.LayerNorm
  SentenceStep step{.kind = SentenceStep::Kind::kLayerNorm};
  step.norm = {.kind = NormKind::kLayer,
               .columns = width,
               .gain = read_tensor(weights, path, "norm.weight", {width}),
               .bias = read_tensor(weights, path, "norm.bias", {width}),
               .eps = kEpsilon};
  return step;
}

void read_splade_pooling(const std::string& directory, SentenceModules& out) {
  using Reduce = LexicalPooling::Reduce;
  using Logarithms = LexicalPooling::Logarithms;
  ModuleConfig config(directory + "/config.json", out);
  out.lexical.reduce =
      config.choice<Reduce>("pooling_strategy", Reduce::kMax, {{"max", Reduce::kMax}, {"sum", Reduce::kSum}});
  out.lexical.logarithms = config.choice<Logarithms>("activation_function", Logarithms::kOne,
                                                     {{"relu", Logarithms::kOne}, {"log1p_relu", Logarithms::kTwo}});
  for (const char* key : {"word_embedding_dimension", "embedding_dimension"}) static_cast<void>(config.find(key));
  finish(config);
}

std::vector<std::string> read_words(const json& value, const std::string& key, const std::string& where) {
  std::vector<std::string> words;
  if (value.is_null()) return words;
  if (!value.is_array()) fail(where, "{} must be a list of texts, got {}", key, value.dump());
  for (const json& word : value) {
    if (!word.is_string()) fail(where, "{} must be a list of texts, got {}", key, value.dump());
    words.push_back(word.get<std::string>());
  }
  return words;
}

void read_multi_vector_mask(const std::string& directory, SentenceModules& out) {
  ModuleConfig config(directory + "/config.json", out);
  TokenRules& tokens = out.tokens;
  tokens.skips_punctuation = false;
  if (const json* words = config.find("skiplist_words"))
    tokens.skipped_words = read_words(*words, "skiplist_words", config.where);
  read_tasks(config, "skiplist_tasks", tokens.skips_queries, tokens.skips_documents);
  if (const json* ids = find_value(config, "keep_only_token_ids")) {
    if (!ids->is_array()) fail(config.where, "keep_only_token_ids must be a list of ids, got {}", ids->dump());
    for (const json& id : *ids) {
      if (!id.is_number_unsigned() || id > std::numeric_limits<int32_t>::max())
        fail(config.where, "keep_only_token_ids must be a list of ids, got {}", ids->dump());
      tokens.kept_ids.push_back(id.get<int32_t>());
    }
  }
  finish(config);
}

void read_token_pooling(const std::string& directory, SentenceModules& out) {
  ModuleConfig config(directory + "/config.json", out);
  TokenPooling pooling;
  pooling.factor = config.number("pool_factor", 1, {1, static_cast<double>(kMaxTextLength)});
  pooling.protected_tokens = config.integer("num_protected_tokens", 1, 0, kMaxTextLength);
  pooling.normalizes = config.boolean("normalize_embeddings", false);
  read_tasks(config, "tasks", pooling.pools_queries, pooling.pools_documents);
  finish(config);
  out.token_pooling = pooling;
}

void read_layer_pooling(const std::string& directory, SentenceModules& out) {
  ModuleConfig config(directory + "/config.json", out);
  const int64_t layers = config.integer("num_hidden_layers", 12, 1, kMaxFeatures);
  const int64_t start = config.integer("layer_start", 4, 0, layers);
  for (const char* key : {"word_embedding_dimension", "embedding_dimension"}) static_cast<void>(config.find(key));
  finish(config);
  const std::string path = weights_of(directory, out);
  const io::SafetensorsFile weights(path);
  check_others(weights, {"layer_weights"}, path);
  const json encoder = io::read_json(out.encoder_dir + "/config.json");
  const auto states = encoder.is_object() ? encoder.find("output_hidden_states") : encoder.end();
  if (states == encoder.end() || *states != true) {
    io::warn(config.where,
             "WeightedLayerPooling needs output_hidden_states in {}/config.json and is ignored without it, as in "
             "sentence-transformers",
             out.encoder_dir);
    return;
  }
  const std::vector<float> given = read_tensor(weights, path, "layer_weights", {layers + 1 - start});
  const double sum = std::accumulate(given.begin(), given.end(), 0.0);
  if (sum == 0) fail(path, "layer_weights must have a sum other than 0, got 0");
  out.layer_weights.assign(static_cast<size_t>(start), 0);
  for (const float weight : given) out.layer_weights.push_back(static_cast<float>(weight / sum));
}

void read_auto_encoder(const std::string& directory, SentenceModules& out) {
  ModuleConfig config(directory + "/config.json", out);
  config.require({"input_dim"});
  const int64_t in = config.integer("input_dim", 1, 1, kMaxFeatures);
  const int64_t width = config.integer("hidden_dim", 512, 1, kMaxFeatures);
  const int64_t active = config.integer("k", 8, 1, width);
  SentenceStep center{.kind = SentenceStep::Kind::kCenter};
  center.standardizes = config.boolean("normalize", false);
  for (const char* key : {"k_aux", "dead_threshold"}) static_cast<void>(config.find(key));  // of training
  finish(config);
  const std::string path = weights_of(directory, out);
  const io::SafetensorsFile weights(path);
  // The decoder, which is not computed, shares the encoder's matrix.
  const bool is_own = weights.find("encoder.weight") != nullptr;
  const std::string matrix = is_own ? "encoder.weight" : "decoder.linear.weight";
  check_others(weights, {"pre_bias", "latent_bias", "encoder.weight", "decoder.linear.weight", "stats_last_nonzero"},
               path);
  center.center = read_tensor(weights, path, "pre_bias", {in});
  SentenceStep dense{.kind = SentenceStep::Kind::kDense, .activation = Activation::kRelu};
  dense.dense = Linear(Precision::kFloat32, in, width, read_tensor(weights, path, matrix, {width, in}).data(),
                       read_tensor(weights, path, "latent_bias", {width}));
  out.steps.push_back(std::move(center));
  out.steps.push_back(std::move(dense));
  if (out.max_active == 0) out.max_active = active;
  out.sparse = SentenceModules::Sparse::kSteps;
}

bool has_token_head(const std::string& directory, const char* name) {
  const std::string path = fmt::format("{}/{}_linear", directory, name);
  return io::has_file(path + ".safetensors") || io::has_file(path + ".pt");
}

Linear read_token_head(const std::string& directory, const char* name, SentenceModules& out) {
  const std::string path = fmt::format("{}/{}_linear.safetensors", directory, name);
  if (!io::has_file(path)) {
    const bool is_pickle = has_token_head(directory, name);
    fail(directory, "this kind of vectors needs {}_linear.safetensors, got {}", name,
         is_pickle ? fmt::format("{}_linear.pt (python -m roformer_cpp.convert converts the whole model)", name)
                   : "none");
  }
  out.files.push_back(path);
  const io::SafetensorsFile weights(path);
  check_others(weights, {"weight", "bias"}, path);
  const io::TensorView* matrix = weights.find("weight");
  if (matrix == nullptr || matrix->shape.size() != 2)
    fail(path, "a head must have the matrix weight, got {}", matrix == nullptr ? "none" : "another shape");
  return {Precision::kFloat32, matrix->shape[1], matrix->shape[0], finite_elements(*matrix).data(),
          read_tensor(weights, path, "bias", {matrix->shape[0]})};
}

std::optional<QueryExpansion> read_query_expansion(const json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  io::StrictObject config(value, where, "query_expansion");
  config.require({"strategy", "length"});
  QueryExpansion expansion;
  expansion.truncates = config.choice<bool>("strategy", true, {{"fixed", true}, {"min", false}});
  expansion.length = config.integer("length", 1, 1, kMaxTextLength);
  expansion.attends = config.boolean("attend", false);
  if (find_value(config, "token") != nullptr) expansion.token = config.text("token", "");
  config.finish();
  return expansion;
}

SentenceStep read_projection(const std::string& directory, SentenceModules& out) {
  const std::string path = weights_of(directory, out);
  const io::SafetensorsFile weights(path);
  const io::TensorView* matrix = weights.find("linear.weight");
  if (matrix == nullptr || matrix->shape.size() != 2)
    fail(path, "a ColBERT must have the matrix linear.weight, got {}", matrix == nullptr ? "none" : "another shape");
  SentenceStep step{.kind = SentenceStep::Kind::kDense};
  step.dense = Linear(Precision::kFloat32, matrix->shape[1], matrix->shape[0], finite_elements(*matrix).data(), {});
  return step;
}

// The rows of model2vec: `mapping` is a row for each token, `weights` a factor.
void fold_rows(const io::SafetensorsFile& weights, const std::string& path, SentenceModules& out) {
  const auto width = static_cast<size_t>(out.table_width);
  if (const io::TensorView* mapping = weights.find("mapping")) {
    const std::vector<int64_t> rows =
        io::NpyArray{mapping->dtype, mapping->shape, {mapping->data.begin(), mapping->data.end()}}.to_int64(path);
    std::vector<float> table;
    table.reserve(rows.size() * width);
    for (const int64_t row : rows) {
      if (row < 0 || static_cast<size_t>(row) >= out.table.size() / width)
        fail(path, "mapping must have rows below {}, got {}", out.table.size() / width, row);
      const auto from = out.table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * width);
      table.insert(table.end(), from, from + static_cast<std::ptrdiff_t>(width));
    }
    out.table = std::move(table);
  }
  if (weights.find("weights") == nullptr) return;
  const auto rows = static_cast<int64_t>(out.table.size() / width);
  const std::vector<float> factors = read_tensor(weights, path, "weights", {rows});
  for (size_t i = 0; i < out.table.size(); ++i) out.table[i] *= factors[i / width];
}

void read_static_embedding(const std::string& directory, SentenceModules& out) {
  out.encoder_dir = directory;
  out.body = SentenceModules::Body::kStatic;
  const std::string path = weights_of(directory, out);
  const io::SafetensorsFile weights(path);
  const io::TensorView* table = weights.find("embedding.weight");
  const bool is_model2vec = table == nullptr;
  if (is_model2vec) table = weights.find("embeddings");
  if (table == nullptr || table->shape.size() != 2 || table->shape[1] < 1)
    fail(path, "a StaticEmbedding must have the matrix embedding.weight or embeddings, got none");
  check_others(weights, {"embedding.weight", "embeddings", "mapping", "weights"}, path);
  out.table = finite_elements(*table);
  out.table_width = table->shape[1];
  if (is_model2vec) fold_rows(weights, path, out);
}

void read_sparse_static_embedding(const std::string& directory, SentenceModules& out) {
  out.encoder_dir = directory;
  out.body = SentenceModules::Body::kSparseStatic;
  ModuleConfig config(directory + "/config.json", out);
  static_cast<void>(config.find("frozen"));
  if (const json* path = find_value(config, "path"))
    fail(config.where, "path must be null (the weights are in model.safetensors), got {}", path->dump());
  finish(config);
  const std::string path = weights_of(directory, out);
  const io::SafetensorsFile weights(path);
  check_others(weights, {"weight"}, path);
  const io::TensorView* table = weights.find("weight");
  if (table == nullptr || table->shape.size() != 1)
    fail(path, "a SparseStaticEmbedding must have the vector weight, got none");
  out.table = finite_elements(*table);
  out.table_width = table->shape[0];
}

}  // namespace rf::engine
