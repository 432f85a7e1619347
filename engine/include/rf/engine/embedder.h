// Texts to vectors: a tokenizer, an encoder, pooling, dense layers and normalisation, as configured by the files of
// sentence-transformers in the model directory (docs/embeddings.md). A directory without them gives the mean of all
// token vectors, not normalised. Also sparse vectors (SPLADE), vectors of tokens (ColBERT), and all three of bge-m3.
// Does not use PyTorch.
//
// The vector of a text has the same bits whatever the other texts of the call, and for any number of threads. Several
// threads may use an Embedder at the same time.
//
// Throws std::runtime_error, whose text reads "[where] rule, got value", for files and arguments that break a rule, and
// std::bad_alloc.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/engine/model.h"
#include "rf/engine/schedule.h"

namespace rf::io {
class StrictObject;
}
namespace rf::text {
class Tokenizer;
}

namespace rf::engine {

// The functions of sentence-transformers for the similarity of two vectors (similarity_fn_name). Greater is more
// similar.
enum class Similarity {
  kCosine,
  kDot,
  kEuclidean,  // the negative distance
  kManhattan,  // the negative distance
};

// The similarity of vectors of equal size, in float64. The cosine of a vector of zeros is 0.
RF_ENGINE_API double similarity(Similarity function, std::span<const float> a, std::span<const float> b);

// Prompts of sentence-transformers: texts that are put before others, by name.
struct Prompts {
  std::map<std::string, std::string> by_name;
  std::optional<std::string> default_name;  // the name of one prompt
};

// Reads the keys "prompts" and "default_prompt_name" of a config_sentence_transformers.json, `where` in messages.
// Throws Error for invalid values.
RF_ENGINE_API Prompts read_prompts(io::StrictObject& config, const std::string& where);

// A module of sentence-transformers: the last part of its class's name, and its folder in the model directory.
struct Module {
  std::string kind, directory;
  bool is_adapted = false;  // the class of jina-embeddings-v3, a Transformer that takes a task
};
// The modules of modules.json, at least one. Throws Error for custom classes and for folders outside the directory.
RF_ENGINE_API std::vector<Module> read_module_list(const std::string& model_dir);

// The requested prompt, as text or by name; by default the prompt of default_name, else "". Throws ArgumentError,
// [where], if both are given and for an unknown name.
RF_ENGINE_API std::string prompt_of(const Prompts& prompts, const std::optional<std::string>& text,
                                    const std::optional<std::string>& name, std::string_view where);

// The treatment of a text with more than max_length tokens.
enum class LongTexts {
  kTruncate,  // embeds its first tokens, or its last ones, by the tokenizer's truncation_side
  kRefuse,    // an error
};

// The kind of vector of a text.
enum class VectorKind {
  kDense,   // one vector
  kSparse,  // a weight for each entry of the vocabulary; most are 0
  kTokens,  // a vector for each token, compared by MaxSim (late interaction)
  kAll,     // the three, from one pass of a model that has their heads (bge-m3, arXiv:2402.03216)
};

// The kind that the files of a directory state; kDense without such files, kTokens with the heads of bge-m3.
RF_ENGINE_API VectorKind vectors_of(const std::string& model_dir);

// Models may treat queries and documents in different ways: by a prompt of that name, other modules, other lengths, and
// masks for vectors of tokens.
enum class TextRole { kNone, kQuery, kDocument };

struct EmbedderOptions {
  VectorKind vectors = VectorKind::kDense;
  TextRole role = TextRole::kNone;            // of all texts, unless a call gives another
  Precision precision = Precision::kFloat32;  // of the encoder; dense layers are float32
  int64_t token_budget = 4096;                // tokens that are computed together
  // These replace settings of the directory.
  std::vector<Pooling> poolings{};  // several are concatenated; empty: the directory's
  std::optional<bool> normalize{};
  int64_t dimensions = 0;               // the first elements of a vector, which is then normalised again if vectors
                                        // are normalised; 0: the directory's
  int64_t max_length = 0;               // tokens of a text with its special tokens; 0: the directory's
  int64_t max_active = 0;               // weights of a sparse vector, the largest; 0: the directory's, else all
  std::optional<std::string> prompt{};  // text before each text
  std::optional<std::string> prompt_name{};  // one of the directory's prompts
  std::string task{};  // one of the model's (Model::info), which adds its adapter, and its prompt where none is given
  std::string adapter{};  // as ModelOptions::adapter
  LongTexts long_texts = LongTexts::kTruncate;
  int threads = 1;  // that tokenize (see tokenizing_threads); 0: all
  // Takes warnings, each a line; without it they are dropped.
  std::function<void(const std::string&)> warn{};
};

// The number of tokenizing threads for a number of computing threads: tokenizing a text takes a hundredth of the time
// of its vector.
constexpr int tokenizing_threads(int computing) {
  constexpr int kComputingPerTokenizing = 8;
  return (computing + kComputingPerTokenizing - 1) / kComputingPerTokenizing;
}

struct EmbedderInfo {
  VectorKind vectors = VectorKind::kDense;
  TextRole role = TextRole::kNone;
  bool by_role = false;    // queries and documents need separate embedders, for other modules or lengths
  int64_t dimensions = 0;  // of a vector; with VectorKind::kSparse, as sparse_dimensions
  // Dimensions of token vectors and of sparse vectors; 0: not computed.
  int64_t token_dimensions = 0, sparse_dimensions = 0;
  int64_t max_active = 0;  // weights of a sparse vector; 0: all
  int64_t width = 0;       // of a vector before its first elements are taken
  int64_t max_length = 0;  // tokens of a text with its special tokens, unless the directory has a length for the role
  std::vector<Pooling> poolings;
  bool normalized = false;                     // vectors have length 1
  std::string prompt;                          // text before each text
  std::map<std::string, std::string> prompts;  // the directory's, by name
  std::map<std::string, std::string> tasks;    // the tasks that have an adapter, each with its prompt
  std::string task;                            // the one in use; "": none
  std::optional<std::string> default_prompt_name;
  Similarity similarity = Similarity::kCosine;  // the similarity the vectors were trained for
  bool mean_of_maxima = false;                  // MaxSim is divided by the number of the query's vectors
};

// Texts as tokens. Equal texts are one sequence.
struct TokenizedTexts {
  std::vector<int32_t> ids, types;        // of all sequences; types: empty if all are 0
  std::vector<int64_t> offsets{0};        // sequence i is tokens offsets[i] .. offsets[i + 1] - 1; it may be empty
  std::vector<int64_t> sequence_of_text;  // sequences are numbered in the order of their first text
  std::vector<uint8_t> attend;            // as in Tokens: 0 for tokens that are added to queries
  std::vector<uint8_t> pooled;            // as in Tokens: 0 for tokens of a prompt that poolings leave out, and for
                                          // those whose vectors are left out of vectors of tokens
  int64_t full_texts = 0;                 // sequences that reached max_length tokens; longer texts were truncated
  int64_t replaced_bytes = 0;             // ill-formed UTF-8 sequences, read as U+FFFD, without truncated ends

  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t texts() const { return static_cast<int64_t>(sequence_of_text.size()); }
  Tokens tokens() const { return {.ids = ids, .offsets = offsets, .types = types, .attend = attend, .pooled = pooled}; }
};

// The first text of a sequence, for messages: its number from 0 and its beginning.
RF_ENGINE_API std::string name_of_text(const TokenizedTexts& tokens, int64_t sequence,
                                       std::span<const std::string_view> texts);

// The weights of a sparse vector that are not 0, by ascending index.
struct SparseVector {
  std::vector<int32_t> indices;
  std::vector<float> values;
};
// Keeps the max_active largest weights, the first among equal weights; 0: all.
RF_ENGINE_API SparseVector sparse_of(std::span<const float> weights, int64_t max_active);

// The vectors of a text. Kinds that the embedder does not compute are empty.
struct TextVectors {
  std::vector<float> dense;  // [dimensions]
  SparseVector sparse;
  std::vector<float> tokens;  // [its vectors, token_dimensions], one after another
};

// MaxSim (ColBERT, arXiv:2004.12832) of the model's vectors of tokens: for each vector of the query its largest product
// with a vector of the document, summed in float64, or their mean if the model says so. A document without vectors
// comes after all others, as in sentence-transformers: with the sum -1e9.
RF_ENGINE_API double max_similarity(const EmbedderInfo& model, std::span<const float> query,
                                    std::span<const float> document);

// Ward clustering of a text's vectors by their cosines, whose groups become their means (HierarchicalTokenPooling).
struct TokenPooling {
  double factor = 1;             // vectors per remaining vector
  int64_t protected_tokens = 1;  // the first vectors, which stay
  bool normalizes = false;
  bool pools_queries = false, pools_documents = true;
};

// Pools the token vectors of a text, [n, dimensions], in place.
RF_ENGINE_API void pool_tokens(const TokenPooling& pooling, int64_t dimensions, std::vector<float>& vectors);

class RF_ENGINE_API Embedder {
 public:
  explicit Embedder(const std::string& model_dir, const EmbedderOptions& options = {});
  ~Embedder();
  Embedder(Embedder&&) noexcept;
  Embedder& operator=(Embedder&&) noexcept;

  const EmbedderInfo& info() const;
  const Model& model() const;  // the encoder; throws Error for a model without one
  const text::Tokenizer& tokenizer() const;
  // A vector's first elements, as with EmbedderOptions::dimensions: normalised again if info().normalized, or if
  // `normalizes`.
  std::vector<float> shorten(std::span<const float> vector, int64_t dimensions, bool normalizes = false) const;
  // The token of an index of sparse vectors; nullopt for the rows of a model beyond its tokenizer's vocabulary. Throws
  // Error out of range.
  std::optional<std::string> token(int64_t index) const;
  // A hash of the content of all files that the vectors depend on.
  std::string identity() const;

  // One vector of each text, [texts.size(), dimensions], also of a masked language model's weights. Throws for a vector
  // that is not finite, with the text. prompt: put before each text; nullopt: info().prompt.
  void embed(std::span<const std::string_view> texts, float* out,
             const std::optional<std::string>& prompt = std::nullopt) const;

  // The vectors of each text, of the embedder's kind. role: nullopt for info().role. max_length: tokens of a text, if
  // they are fewer than the directory's.
  std::vector<TextVectors> vectors(std::span<const std::string_view> texts,
                                   const std::optional<std::string>& prompt = std::nullopt,
                                   std::optional<TextRole> role = std::nullopt,
                                   int64_t max_length = std::numeric_limits<int64_t>::max()) const;
  // The same from the rows of a sequence that computation() gave.
  TextVectors vectors(const TokenizedTexts& tokens, int64_t sequence, std::span<const float> rows,
                      std::optional<TextRole> role = std::nullopt) const;

  // The two steps of embed() and vectors(). The rows of sequences, which may be empty, or of their tokens, finite or
  // not.
  TokenizedTexts tokenize(std::span<const std::string_view> texts,
                          const std::optional<std::string>& prompt = std::nullopt,
                          std::optional<TextRole> role = std::nullopt,
                          int64_t max_length = std::numeric_limits<int64_t>::max()) const;
  void embed(const Tokens& tokens, float* out) const;
  // The second step, for the schedule (rf/engine/schedule.h); the embedder must outlive it.
  Computation computation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
