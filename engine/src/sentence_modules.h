// The files of sentence-transformers in a model directory: modules.json, the configurations of its modules,
// sentence_bert_config.json and config_sentence_transformers.json. Read strictly: a key or a module that is not
// supported is an error that names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers.h"
#include "rf/engine/embedder.h"
#include "rf/engine/model.h"

namespace rf::engine {

// A step after the transformer or its pooling, on vectors of tokens or of texts.
struct SentenceStep {
  enum class Kind { kDense, kNormalize, kLayerNorm, kCenter } kind;
  Linear dense{};
  std::optional<Activation> activation{};  // of the dense layer; absent: none
  enum class Residual { kNone, kInput, kProjected } residual = Residual::kNone;
  Linear residual_projection{};
  Norm norm{};
  std::vector<float> center{};  // of kCenter: subtracted
  bool standardizes = false;    // of kCenter, before: x = (x - mean) / (standard deviation + 1e-5)
};

// Tokens that are added to short queries (ColBERT, arXiv:2004.12832).
struct QueryExpansion {
  int64_t length = 0;     // tokens of a query, with special tokens
  bool truncates = true;  // longer queries keep `length` tokens
  bool attends = false;   // all tokens attend to the added ones
  std::string token;      // "": [MASK], else the end of a text
};

// Lengths and masks of texts by their role, for vectors of tokens.
struct TokenRules {
  int64_t query_length = 0, document_length = 0;  // 0: not stated
  std::optional<QueryExpansion> expansion;
  std::vector<std::string> skipped_words;  // tokens whose vectors are left out
  bool skips_punctuation = false;          // they are not named by a file
  bool skips_queries = false, skips_documents = true;
  bool skips_first = false;          // the first token of a text gets no vector
  std::vector<int32_t> kept_ids;     // tokens of documents whose vectors are kept; empty: all
  std::vector<std::string> markers;  // prompts that begin with a token, which the tokenizer must not split
};

struct SentenceModules {
  std::string encoder_dir;  // config.json, weights, and the tokenizer's files
  bool is_routed = false;   // each role has its modules
  bool is_adapted = false;  // the transformer is the class of jina-embeddings-v3, which takes a task
  enum class Body {
    kTransformer,
    kStatic,        // rows of a table, without a transformer
    kSparseStatic,  // a weight for each token that occurs
  } body = Body::kTransformer;
  std::vector<Pooling> poolings{Pooling::kMean};
  enum class PooledPrompt { kIncluded, kLeftOut } pooled_prompt = PooledPrompt::kIncluded;
  std::vector<SentenceStep> steps;
  std::vector<float> layer_weights;                                         // of hidden states (rf/engine/model.h)
  enum class Sparse { kLogits, kTokens, kSteps } sparse = Sparse::kLogits;  // the source of sparse weights
  Linear token_weight;                                                      // of bge-m3: of each token, before relu
  std::vector<SentenceStep> token_steps;                                    // of token vectors among other kinds
  std::optional<TokenPooling> token_pooling;
  int64_t max_length = 0;  // 0: not stated
  bool lower_case = false;
  int64_t dimensions = 0;  // 0: all
  int64_t max_active = 0;  // of sparse vectors; 0: all
  Prompts prompts;
  Similarity similarity = Similarity::kCosine;
  bool mean_of_maxima = false;  // MaxSim is divided by the number of the query's vectors
  LexicalPooling lexical;
  TokenRules tokens;
  std::vector<float> table;  // of static bodies, [rows, table_width]
  int64_t table_width = 0;
  std::vector<std::string> files;  // that were read, without the encoder's
};

// Throws Error. A directory without modules.json is the encoder's: with mean pooling, or for sparse vectors a masked
// language model with the maxima of its logits, or for vectors of tokens one of Stanford's ColBERT.
SentenceModules read_sentence_modules(const std::string& model_dir, VectorKind vectors, TextRole role);

}  // namespace rf::engine
