// Files of sentence-transformers, versions 2 to 6, and of the libraries of late interaction that came before (see the
// header), and prompts (rf/engine/embedder.h). Names of modules have changed with the versions:
// "sentence_transformers.models.Pooling" and "sentence_transformers.sentence_transformer.modules.pooling.Pooling" are
// one, so the last part of a name decides.
#include "sentence_modules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "module_files.h"
#include "rf/engine/names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/gguf.h"
#include "rf/io/printable.h"
#include "rf/io/strict_object.h"
#include "rf/model/foreign_models.h"
#include "weights.h"

namespace rf::engine {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kModules = "modules.json";
constexpr const char* kModel = "config_sentence_transformers.json";
constexpr std::string_view kPunctuation = R"(!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~)";

// The kinds of models, by their vectors.
struct ModelKind {
  VectorKind vectors;
  const char* name;  // model_type in config_sentence_transformers.json
  const char* hint;  // for a directory of this kind that is opened as another
};
constexpr ModelKind kModelKinds[] = {
    {VectorKind::kDense, "SentenceTransformer", " (roformer embed reads it without --sparse and --multi)"},
    {VectorKind::kSparse, "SparseEncoder", " (roformer embed --sparse reads it)"},
    {VectorKind::kTokens, "MultiVectorEncoder", " (roformer rerank and embed --multi read it)"},
    {VectorKind::kTokens, "ColBERT", " (roformer rerank and embed --multi read it)"},  // of PyLate
};

// The last part of a class's name.
std::string kind_of(const std::string& type, const std::string& key, const std::string& where) {
  if (!type.starts_with("sentence_transformers.") && type != "pylate.models.Dense.Dense") {
    fail(where, "{} must be a module of sentence-transformers, got {} (a class of the model's own code)", key,
         io::printable(type));
  }
  return type.substr(type.rfind('.') + 1);
}

std::string module_folder(const std::string& model_dir, const std::string& path, const std::string& where) {
  const fs::path relative(path);
  for (const fs::path& part : relative) {
    if (relative.is_absolute() || part == "..")
      fail(where, "a module's path must lie in the model directory, got {}", io::printable(path));
  }
  return path.empty() ? model_dir : (fs::path(model_dir) / relative).string();
}

// The way of a Router without a role: by default its first one.
std::string default_route(io::StrictObject& parameters, const std::string& where) {
  const bool has_first = parameters.boolean("allow_empty_key", true);
  if (const json* way = find_value(parameters, "default_route")) {
    if (!way->is_string()) fail(where, "parameters.default_route must be a name, got {}", way->dump());
    return way->get<std::string>();
  }
  if (!has_first)
    fail(where, "texts need a role (--role query or document), because parameters.default_route is null, got none");
  const auto ordered = nlohmann::ordered_json::parse(io::read_file(where)).at("structure");
  return ordered.empty() ? "" : ordered.begin().key();
}

// The modules of the way that a Router has for a role.
std::vector<Module> read_route(const std::string& directory, TextRole role, SentenceModules& out) {
  out.is_routed = true;
  ModuleConfig config(directory + "/router_config.json", out);
  const std::string& where = config.where;
  config.require({"types", "structure", "parameters"});
  const io::StrictObject types = config.object("types"), ways = config.object("structure");
  io::StrictObject parameters = config.object("parameters");
  for (const char* key : {"default_route", "allow_empty_key"}) static_cast<void>(parameters.find(key));
  if (const json* mappings = parameters.find("route_mappings"); mappings != nullptr && !mappings->empty())
    fail(where, "parameters.route_mappings must be empty, got {}", mappings->dump());
  parameters.finish();
  finish(config);
  const std::string name = role == TextRole::kQuery      ? "query"
                           : role == TextRole::kDocument ? "document"
                                                         : default_route(parameters, where);
  const json& structure = config.contents.at("structure");
  if (!structure.contains(name) || !structure.at(name).is_array() || structure.at(name).empty())
    fail(where, "structure must have modules for {}, got {}", io::printable(name), structure.dump());
  std::vector<Module> modules;
  for (const json& id : structure.at(name)) {
    const std::string part = id.is_string() ? id.get<std::string>() : "";
    const json& kinds = config.contents.at("types");
    if (!kinds.contains(part) || !kinds.at(part).is_string())
      fail(where, "types must name the class of {}, got {}", id.dump(), kinds.dump());
    modules.push_back({.kind = kind_of(kinds.at(part).get<std::string>(), "types", where),
                       .directory = module_folder(directory, part, where)});
  }
  return modules;
}

void skip_punctuation(TokenRules& tokens) {
  tokens.skips_punctuation = true;
  for (const char word : kPunctuation) tokens.skipped_words.emplace_back(1, word);
}

// Reads PyLate's keys, which replace modules of sentence-transformers. Returns whether the file has such keys.
bool read_late_interaction(io::StrictObject& config, SentenceModules& out, const std::string& where) {
  constexpr const char* kAttention[] = {"attend_to_mask_tokens", "attend_to_expansion_tokens"};
  bool is_known = false;
  for (const char* key : {"query_prefix", "document_prefix", "query_length", "document_length", "do_query_expansion",
                          kAttention[0], kAttention[1], "skiplist_words", "query_expansion"}) {
    is_known = config.find(key) != nullptr || is_known;
  }
  if (!is_known) return false;
  TokenRules& tokens = out.tokens;
  for (const auto& [key, name] : {std::pair{"query_prefix", "query"}, std::pair{"document_prefix", "document"}}) {
    if (find_value(config, key) == nullptr) continue;
    const std::string prefix = config.text(key, "");
    std::string& prompt = out.prompts.by_name[name];
    if (!prompt.starts_with(prefix)) prompt = prefix + prompt;
    if (!prefix.empty()) tokens.markers.push_back(prefix);
  }
  int64_t length = 32;  // the default of ColBERT
  read_count(config, "query_length", kMaxTextLength, length);
  read_count(config, "document_length", kMaxTextLength, tokens.document_length);
  const bool expands =
      find_value(config, "do_query_expansion") == nullptr || config.boolean("do_query_expansion", true);
  bool attends = false;
  for (const char* key : kAttention) {
    if (find_value(config, key) != nullptr) attends = config.boolean(key, false);
  }
  if (const json* expansion = config.find("query_expansion")) {
    tokens.expansion = read_query_expansion(*expansion, where);
  } else if (expands) {
    tokens.expansion = QueryExpansion{.length = length, .truncates = true, .attends = attends, .token = ""};
  } else if (config.find("query_length") != nullptr) {
    tokens.query_length = length;
  }
  if (const json* words = find_value(config, "skiplist_words")) {
    tokens.skipped_words = read_words(*words, "skiplist_words", where);
  } else {
    skip_punctuation(tokens);
  }
  return true;
}

// Returns whether the modules of late interaction are in keys of this file.
bool read_model(const std::string& model_dir, VectorKind vectors, SentenceModules& out) {
  const std::string where = fmt::format("{}/{}", model_dir, kModel);
  if (!io::has_file(where)) return false;
  ModuleConfig config(where, out);
  static_cast<void>(config.find("__version__"));
  out.prompts = read_prompts(config, where);
  const bool is_tokens = vectors == VectorKind::kTokens;
  const bool has_keys = is_tokens && read_late_interaction(config, out, where);
  const std::string type = config.text("model_type", has_keys ? "ColBERT" : "SentenceTransformer");
  const auto is_type = [&](const ModelKind& kind) { return kind.name == type; };
  const auto* known = std::ranges::find_if(kModelKinds, is_type);
  const bool is_known = known != std::end(kModelKinds);
  if (!(is_known && known->vectors == vectors) && !(has_keys && type == "SentenceTransformer")) {
    const auto* wanted = std::ranges::find(kModelKinds, vectors, &ModelKind::vectors);
    const char* kind = vectors == VectorKind::kDense    ? "vectors"
                       : vectors == VectorKind::kSparse ? "sparse vectors"
                                                        : "vectors of tokens";
    fail(where, "{} need a {}, got a {}{}", kind, wanted->name, io::printable(type),
         is_known                 ? known->hint
         : type == "CrossEncoder" ? " (roformer rerank and predict read it)"
                                  : "");
  }
  if (const json* name = find_value(config, "similarity_fn_name")) {
    if (is_tokens) {
      const bool is_old = *name == "cosine" || *name == "dot";  // of PyLate, which means MaxSim
      out.mean_of_maxima =
          !is_old && config.choice<bool>("similarity_fn_name", false, {{"maxsim", false}, {"meanmaxsim", true}});
    } else {
      out.similarity = config.choice("similarity_fn_name", Similarity::kCosine, kSimilarityNames);
    }
  }
  read_count(config, "truncate_dim", kMaxFeatures, out.dimensions);
  read_count(config, "max_active_dims", kMaxFeatures, out.max_active);
  finish(config);
  return has_keys;
}

void read_step(const Module& module, const std::string& level, const std::string& where, SentenceModules& out) {
  if (module.kind == "Dense") {
    out.steps.push_back(read_dense(module.directory, level, out));
  } else if (module.kind == "Normalize") {
    out.steps.push_back(read_normalize(module.directory, level, out));
  } else if (module.kind == "LayerNorm" && level == kTextLevel) {
    out.steps.push_back(read_layer_norm(module.directory, out));
  } else if (module.kind != "Dropout") {  // which does nothing outside training
    fail(where, "the modules after {} must be {}, got {}", level == kTextLevel ? "Pooling" : "Transformer",
         level == kTextLevel ? "Dense, LayerNorm or Normalize"
                             : "HierarchicalTokenPooling at the end, else Dense, MultiVectorMask or Normalize",
         io::printable(module.kind));
  }
}

// Transformer, and WeightedLayerPooling if it follows. Returns the number of modules that were read.
size_t read_encoder(std::span<const Module> modules, const char* task, SentenceModules& out) {
  read_transformer(modules[0].directory, task, out);
  if (modules.size() < 2 || modules[1].kind != "WeightedLayerPooling") return 1;
  read_layer_pooling(modules[1].directory, out);
  return 2;
}

// The modules that end in one vector for each text.
void read_dense_modules(std::span<const Module> modules, const std::string& where, SentenceModules& out) {
  size_t next = 0;
  if (!modules.empty() && modules[0].kind == "StaticEmbedding") {
    read_static_embedding(modules[next++].directory, out);
  } else {
    for (const char* kind : {"Transformer", "Pooling"}) {
      if (next == modules.size() || modules[next].kind != kind) {
        fail(where,
             "the modules must be Transformer, Pooling, and then Dense, LayerNorm or Normalize, got {} as number {}",
             next == modules.size() ? "none" : io::printable(modules[next].kind), next + 1);
      }
      if (next == 0) {
        next = read_encoder(modules, "feature-extraction", out);
      } else {
        read_pooling(modules[next++].directory, out);
      }
    }
  }
  for (; next < modules.size(); ++next) read_step(modules[next], kTextLevel, where, out);
}

void read_sparse_modules(std::span<const Module> modules, const std::string& where, SentenceModules& out) {
  if (modules.size() == 1 && modules[0].kind == "SparseStaticEmbedding")
    return read_sparse_static_embedding(modules[0].directory, out);
  if (modules.back().kind == "SparseAutoEncoder") {
    read_dense_modules(modules.first(modules.size() - 1), where, out);
    return read_auto_encoder(modules.back().directory, out);
  }
  const bool is_transformer = modules[0].kind == "Transformer" || modules[0].kind == "MLMTransformer";
  if (modules.size() != 2 || !is_transformer || modules[1].kind != "SpladePooling") {
    std::vector<std::string> kinds;
    for (const Module& module : modules) kinds.push_back(io::printable(module.kind));
    fail(
        where,
        "the modules must be Transformer and SpladePooling, or SparseStaticEmbedding, or end in SparseAutoEncoder, got "
        "{}",
        fmt::join(kinds, ", "));
  }
  read_transformer(modules[0].directory, "fill-mask", out);
  read_splade_pooling(modules[1].directory, out);
}

void read_token_modules(std::span<const Module> modules, const std::string& where, SentenceModules& out) {
  if (modules[0].kind != "Transformer")
    fail(where, "the first module must be a Transformer, got {}", io::printable(modules[0].kind));
  const std::optional<QueryExpansion> expansion = out.tokens.expansion;
  size_t next = read_encoder(modules, "feature-extraction", out);
  if (!out.tokens.expansion) out.tokens.expansion = expansion;
  for (; next < modules.size(); ++next) {
    const Module& module = modules[next];
    if (out.token_pooling && module.kind != "Dropout")
      fail(where, "HierarchicalTokenPooling must be the last module, got {} after it", io::printable(module.kind));
    if (module.kind == "MultiVectorMask") {
      read_multi_vector_mask(module.directory, out);
    } else if (module.kind == "HierarchicalTokenPooling") {
      read_token_pooling(module.directory, out);
    } else {
      read_step(module, kTokenLevel, where, out);
    }
  }
}

// A directory of Stanford's ColBERT: the projection is in the encoder's file, the settings are in artifact.metadata.
void read_colbert(const std::string& model_dir, SentenceModules& out) {
  const std::string where = model_dir + "/artifact.metadata";
  const json file = io::has_file(where) ? read_noted(where, out) : json::object();
  io::StrictObject config(file, where, "");
  TokenRules& tokens = out.tokens;
  for (const auto& [key, name, fallback] :
       {std::tuple{"query_token_id", "query", "[unused0]"}, std::tuple{"doc_token_id", "document", "[unused1]"}}) {
    std::string& prompt = out.prompts.by_name[name];
    prompt = config.text(key, fallback) + " ";
    tokens.markers.push_back(prompt);
  }
  tokens.expansion = QueryExpansion{.length = config.integer("query_maxlen", 32, 1, kMaxTextLength),
                                    .truncates = true,
                                    .attends = config.boolean("attend_to_mask_tokens", false),
                                    .token = ""};
  tokens.document_length = config.integer("doc_maxlen", tokens.document_length, 1, kMaxTextLength);
  if (config.boolean("mask_punctuation", true)) skip_punctuation(tokens);
  // The other keys are settings of training and of an index.
  out.steps.push_back(read_projection(model_dir, out));
  out.steps.push_back({.kind = SentenceStep::Kind::kNormalize});
}

bool is_colbert(const std::string& model_dir) {
  const std::string config = model_dir + "/config.json";
  const json file = io::has_file(config) ? io::read_json(config) : json();
  const json classes = file.is_object() ? file.value("architectures", json()) : json();
  return classes.is_array() && std::ranges::find(classes, "HF_ColBERT") != classes.end();
}

void read_without_modules(const std::string& model_dir, VectorKind vectors, const std::string& where,
                          SentenceModules& out) {
  if (vectors == VectorKind::kSparse) out.similarity = Similarity::kDot;
  const bool has_projection = is_colbert(model_dir);
  if (has_projection && vectors == VectorKind::kTokens) return read_colbert(model_dir, out);
  if (has_projection)
    fail(model_dir + "/config.json",
         "vectors of this kind need another model, got HF_ColBERT (roformer rerank and embed --multi read it)");
  if (vectors == VectorKind::kTokens) {
    fail(where,
         "vectors of tokens need the modules of a MultiVectorEncoder, of PyLate or a ColBERT of Stanford, got no file");
  }
}

SentenceModules read_modules(const std::string& model_dir, VectorKind vectors, TextRole role) {
  SentenceModules out;
  out.encoder_dir = model_dir;
  const std::string where = fmt::format("{}/{}", model_dir, kModules);
  if (!io::has_file(where)) {
    read_without_modules(model_dir, vectors, where, out);
    return out;
  }
  if (vectors == VectorKind::kSparse) out.similarity = Similarity::kDot;
  const bool has_keys = read_model(model_dir, vectors, out);  // first: another kind of model has other modules
  std::vector<Module> modules = read_module_list(model_dir);
  out.files.push_back(where);
  out.is_adapted = modules[0].is_adapted;
  if (modules[0].kind == "Router") {
    const std::vector<Module> way = read_route(modules[0].directory, role, out);
    modules.erase(modules.begin());
    modules.insert(modules.begin(), way.begin(), way.end());
  }
  switch (vectors) {
    case VectorKind::kSparse: read_sparse_modules(modules, where, out); break;
    case VectorKind::kTokens: read_token_modules(modules, where, out); break;
    default: read_dense_modules(modules, where, out);
  }
  const auto is_normalize = [](const SentenceStep& step) { return step.kind == SentenceStep::Kind::kNormalize; };
  if (has_keys && std::ranges::none_of(out.steps, is_normalize))
    out.steps.push_back({.kind = SentenceStep::Kind::kNormalize});
  if (vectors != VectorKind::kTokens && out.tokens.expansion)
    fail(where, "query_expansion needs vectors of tokens, got another model");
  return out;
}

// The other kinds of vectors of bge-m3. Its files describe one vector per text, plus two heads.
void read_heads(const std::string& model_dir, VectorKind vectors, SentenceModules& out) {
  if (out.body != SentenceModules::Body::kTransformer || out.pooled_prompt == SentenceModules::PooledPrompt::kLeftOut)
    fail(model_dir, "the heads of bge-m3 need a Transformer and include_prompt, got another model");
  const bool is_all = vectors == VectorKind::kAll;
  if (is_all || vectors == VectorKind::kSparse) {
    out.token_weight = read_token_head(model_dir, "sparse", out);
    out.sparse = SentenceModules::Sparse::kTokens;
  }
  if (is_all || vectors == VectorKind::kTokens) {
    SentenceStep dense{.kind = SentenceStep::Kind::kDense};
    dense.dense = read_token_head(model_dir, "colbert", out);
    out.token_steps.push_back(std::move(dense));
    out.token_steps.push_back({.kind = SentenceStep::Kind::kNormalize});
    out.tokens.skips_first = out.mean_of_maxima = true;
  }
  if (is_all) return;
  out.steps = std::exchange(out.token_steps, {});
  out.dimensions = 0;
  if (vectors == VectorKind::kSparse) out.similarity = Similarity::kDot;
}

// A matrix of a GGUF file as a step without a bias; the file may lack it.
void add_gguf_dense(const io::GgufFile& file, const std::string& name, SentenceModules& out) {
  const io::GgufTensor* const tensor = file.find(name);
  if (tensor == nullptr) return;
  if (tensor->shape.size() != 2)
    fail(file.path(), "{} must be a matrix, got {} dimensions", name, tensor->shape.size());
  const std::vector<float> values = file.numbers(*tensor);
  SentenceStep step{.kind = SentenceStep::Kind::kDense};
  step.dense = Linear(Precision::kFloat32, static_cast<int64_t>(tensor->shape[0]),
                      static_cast<int64_t>(tensor->shape[1]), values.data(), {});
  out.steps.push_back(std::move(step));
}

// One vector of length 1 for each text, as llama.cpp's embeddings are.
SentenceModules read_gguf_modules(const std::string& path, VectorKind vectors) {
  if (vectors != VectorKind::kDense) fail(path, "a GGUF file must be opened for one vector per text, got another kind");
  const io::GgufFile file(path);
  SentenceModules out;
  out.encoder_dir = path;
  out.files = file.paths();
  const json architecture = file.metadata().value("general.architecture", json());
  const std::string key =
      fmt::format("{}.pooling_type", architecture.is_string() ? architecture.get<std::string>() : "general");
  constexpr std::pair<int, Pooling> kTypes[] = {{1, Pooling::kMean}, {2, Pooling::kCls}, {3, Pooling::kLast}};
  const json type = file.metadata().value(key, json(0));
  const auto* const found = std::ranges::find_if(kTypes, [&](const auto& each) { return type == each.first; });
  if (found == std::end(kTypes) && type != 0)
    fail(path, "{} must be 0 (none), 1 (mean), 2 (cls) or 3 (last), got {}", key, type.dump());
  out.poolings = found == std::end(kTypes) ? std::vector<Pooling>() : std::vector{found->second};
  for (const std::string_view name : kGgufDense) {
    if (architecture == "gemma-embedding") add_gguf_dense(file, std::string(name), out);
  }
  out.steps.push_back({.kind = SentenceStep::Kind::kNormalize});
  return out;
}

}  // namespace

SentenceModules read_sentence_modules(const std::string& model_dir, VectorKind vectors, TextRole role) {
  if (const std::optional<std::string> gguf = gguf_path(model_dir)) return read_gguf_modules(*gguf, vectors);
  const bool has_heads = has_token_head(model_dir, "sparse") || has_token_head(model_dir, "colbert");
  if (!has_heads && vectors == VectorKind::kAll)
    fail(model_dir, "vectors of all kinds need sparse_linear and colbert_linear (bge-m3), got none");
  SentenceModules out = read_modules(model_dir, has_heads ? VectorKind::kDense : vectors, role);
  if (has_heads && !io::has_file(fmt::format("{}/{}", model_dir, kModules))) {  // as FlagEmbedding's defaults are
    out.poolings = {Pooling::kCls};
    out.steps.push_back({.kind = SentenceStep::Kind::kNormalize});
  }
  if (has_heads && vectors != VectorKind::kDense) read_heads(model_dir, vectors, out);
  return out;
}

VectorKind vectors_of(const std::string& model_dir) {
  const std::string path = fmt::format("{}/{}", model_dir, kModel);
  if (has_token_head(model_dir, "colbert")) return VectorKind::kTokens;
  if (!io::has_file(fmt::format("{}/{}", model_dir, kModules)))
    return is_colbert(model_dir) ? VectorKind::kTokens : VectorKind::kDense;
  const json file = io::has_file(path) ? io::read_json(path) : json::object();
  if (!file.is_object()) return VectorKind::kDense;
  if (file.contains("query_prefix")) return VectorKind::kTokens;
  const json type = file.value("model_type", json());
  for (const ModelKind& kind : kModelKinds) {
    if (type == kind.name) return kind.vectors;
  }
  return VectorKind::kDense;
}

std::vector<Module> read_module_list(const std::string& model_dir) {
  const std::string where = fmt::format("{}/{}", model_dir, kModules);
  const json list = io::read_json(where);
  if (!list.is_array() || list.empty())
    fail(where, "must be a list of modules, got {}", list.is_array() ? "an empty one" : list.type_name());
  std::vector<Module> modules;
  std::set<json> names;
  for (size_t i = 0; i < list.size(); ++i) {
    io::StrictObject entry(list[i], where, fmt::format("[{}]", i));
    entry.require({"path", "type"});
    static_cast<void>(entry.find("idx"));
    const json* const name = entry.find("name");
    if (name != nullptr && !names.insert(*name).second)  // of two, sentence-transformers keeps the last
      fail(where, "[{}].name must be that of no other module, got {}", i, name->dump());
    const std::string type = entry.text("type", "");
    const bool is_adapted = i == 0 && type == "custom_st.Transformer";
    const json* const arguments = entry.find("kwargs");
    if (arguments != nullptr && !arguments->empty() && !(is_adapted && *arguments == json::array({"task"})))
      fail(where, "[{}].kwargs must be empty, got {}", i, arguments->dump());
    const std::string kind = is_adapted ? "Transformer" : kind_of(type, fmt::format("[{}].type", i), where);
    entry.finish();
    modules.push_back({kind, module_folder(model_dir, entry.text("path", ""), where), is_adapted});
  }
  return modules;
}

Prompts read_prompts(io::StrictObject& config, const std::string& where) {
  Prompts prompts;
  if (const json* given = find_value(config, "prompts")) {
    if (!given->is_object()) fail(where, "prompts must be an object, got {}", given->dump());
    for (const auto& [name, prompt] : given->items()) {
      if (!prompt.is_string())
        fail(where, "a prompt must be a text, got {} for {}", prompt.dump(), io::printable(name));
      prompts.by_name[name] = prompt.get<std::string>();
    }
  }
  if (find_value(config, "default_prompt_name") != nullptr) {
    prompts.default_name = config.text("default_prompt_name", "");
    if (!prompts.by_name.contains(*prompts.default_name))
      fail(where, "default_prompt_name must be one of the prompts, got {}", io::printable(*prompts.default_name));
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
