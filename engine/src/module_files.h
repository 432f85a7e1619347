// The configuration and the weights of each module of sentence-transformers (sentence_modules.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rf/io/strict_object.h"
#include "sentence_modules.h"

namespace rf::engine {

// The inputs and outputs of modules: vectors of texts, or of tokens.
inline constexpr const char* kTextLevel = "sentence_embedding";
inline constexpr const char* kTokenLevel = "token_embeddings";
inline constexpr int64_t kMaxFeatures = int64_t{1} << 20;
inline constexpr int64_t kMaxTextLength = int64_t{1} << 31;

// Reads a file, and notes it in `out`.
nlohmann::json read_noted(const std::string& path, SentenceModules& out);
struct NotedFile {
  std::string where;  // its path
  nlohmann::json contents;
};
// A JSON object of a module.
struct ModuleConfig : NotedFile, io::StrictObject {
  ModuleConfig(const std::string& path, SentenceModules& out)
      : NotedFile{path, read_noted(path, out)}, StrictObject(contents, where, "") {}
  ModuleConfig(const ModuleConfig&) = delete;
  ModuleConfig& operator=(const ModuleConfig&) = delete;
};
// The value of a key; nullptr if it is absent or null.
const nlohmann::json* find_value(io::StrictObject& config, const std::string& key);
// Reads an integer from 1 to `most`, if the key has a value.
void read_count(io::StrictObject& config, const std::string& key, int64_t most, int64_t& to);
// Warns of unknown keys, as in config.json.
void finish(const ModuleConfig& config);

// sentence_bert_config.json, in the encoder's directory. `task`: the required transformer_task.
void read_transformer(const std::string& directory, const std::string& task, SentenceModules& out);
void read_pooling(const std::string& directory, SentenceModules& out);
void read_splade_pooling(const std::string& directory, SentenceModules& out);
void read_multi_vector_mask(const std::string& directory, SentenceModules& out);
void read_static_embedding(const std::string& directory, SentenceModules& out);
void read_sparse_static_embedding(const std::string& directory, SentenceModules& out);
// level: kTextLevel or kTokenLevel.
SentenceStep read_dense(const std::string& directory, const std::string& level, SentenceModules& out);
SentenceStep read_normalize(const std::string& directory, const std::string& level, SentenceModules& out);
SentenceStep read_layer_norm(const std::string& directory, SentenceModules& out);
void read_layer_pooling(const std::string& directory, SentenceModules& out);
void read_token_pooling(const std::string& directory, SentenceModules& out);
void read_auto_encoder(const std::string& directory, SentenceModules& out);

// The projection of Stanford's ColBERT: linear.weight of the encoder's own file.
SentenceStep read_projection(const std::string& directory, SentenceModules& out);

// Heads of bge-m3 on hidden states, "sparse" or "colbert".
bool has_token_head(const std::string& directory, const char* name);
Linear read_token_head(const std::string& directory, const char* name, SentenceModules& out);

// query_expansion, an object or null.
std::optional<QueryExpansion> read_query_expansion(const nlohmann::json& value, const std::string& where);
std::vector<std::string> read_words(const nlohmann::json& value, const std::string& key, const std::string& where);

}  // namespace rf::engine
