// A trained encoder in production: token ids in, vectors and logits out. Opens model directories of RoFormer, BERT and
// NEZHA, and rf_encoder with any position encoding (docs/engine.md); and rotary decoders, Hugging Face directories and
// GGUF files (docs/generation.md, docs/embeddings.md). Does not use PyTorch.
//
// A call takes any number of concatenated sequences of any lengths, without padding. They are computed in batches of at
// most `token_budget` tokens (rf/engine/schedule.h), so memory grows with their number by their positions alone. The
// result of a sequence has the same bits whatever the other sequences and their order, and for any number of threads.
// Several threads may use a Model at the same time; each call uses OpenMP's threads of its caller.
//
// Throws std::runtime_error, whose text reads "[where] rule, got value", for files and arguments that break a rule, and
// std::bad_alloc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/engine/precision.h"

#if defined(__GNUC__)
#define RF_ENGINE_API __attribute__((visibility("default")))
#else
#define RF_ENGINE_API
#endif

namespace rf {
enum class Head;       // rf/model/config.h
struct PositionTerms;  // rf/model/position_terms.h
}  // namespace rf

namespace rf::engine {

struct ModelOptions {
  Precision precision = Precision::kFloat32;
  int64_t token_budget = 4096;  // >= 1
  // The head to load: kConfigured is the head that config.json names; kBare loads none, whatever the directory
  // contains.
  enum class Head { kConfigured, kBare, kMaskedLm } head = Head::kConfigured;
  // Weights of a sum over the outputs of the embeddings and of each layer, which replaces the last layer's output as
  // the hidden states; empty: no sum.
  std::vector<float> layer_weights{};
  // Takes warnings, each a line; without it they are dropped.
  std::function<void(const std::string&)> warn{};
  std::string task{};     // one of ModelInfo::tasks, whose adapter is added to the weights; "": none
  std::string adapter{};  // a folder with an adapter of PEFT, which is added; "": none
  // Of Decoder and Generator; not with linear attention, whose sums are float64.
  CachePrecision cache_precision = CachePrecision::kAuto;
};

// Sequence i is ids[offsets[i]] .. ids[offsets[i + 1] - 1].
struct Tokens {
  std::span<const int32_t> ids;
  std::span<const int64_t> offsets;      // [sequences + 1], from 0 to ids.size(); no sequence is empty
  std::span<const int32_t> types{};      // [ids.size()], or empty: all 0; decoders ignore them
  std::span<const uint8_t> attend{};     // [ids.size()], 0: masked for all tokens; empty: all 1
  std::span<const int64_t> positions{};  // [ids.size()], or empty: 0, 1, .. in each sequence
  std::span<const uint8_t> pooled{};     // [ids.size()], 0: left out of poolings; empty: as `attend`
};

// One vector for each sequence.
enum class Pooling {
  kMean,          // of all attended tokens
  kCls,           // the first attended token
  kPooler,        // tanh(dense(first token, masked or not)) in BERTs that have it, dense(..) in prefix language models
  kLast,          // the last attended token
  kMax,           // element by element
  kMeanSqrtLen,   // the sum over the square root of the number of tokens
  kWeightedMean,  // with the weights 1, 2, .. of the sequence's tokens
};

// A weight for each entry of the vocabulary from the logits of a masked language model (SPLADE, arXiv:2107.05720,
// arXiv:2109.10086): log(1 + relu(logit)), reduced over the attended tokens.
struct LexicalPooling {
  enum class Reduce { kMax, kSum } reduce = Reduce::kMax;
  enum class Logarithms { kOne, kTwo } logarithms = Logarithms::kOne;  // kTwo: log(1 + log(1 + relu(logit)))
};

struct ModelInfo {
  // "roformer", "bert", "roformer_v2" or "rf_encoder"; for a rotary decoder, the name in its file
  std::string model_type;
  std::string architecture;  // for example "RoFormerForMaskedLM"
  Head head{};               // the head that `architecture` names; 0: a model without a head and without logits
  int64_t vocab_size = 0, hidden_size = 0, layers = 0, heads = 0;
  int64_t type_vocab_size = 0, max_position_embeddings = 0, pad_token_id = 0;
  bool causal = false;
  bool prefix_lm = false;                    // the tokens of type 0 at the start of a sequence see each other
  std::vector<std::string> labels;           // of classification
  std::string problem_type;                  // "", regression, single_label_classification, multi_label_classification
  std::map<std::string, std::string> tasks;  // the tasks that have an adapter, each with its prompt
  std::vector<int32_t> stop_ids;  // tokens that end a text, if the model's files name them; for rotary decoders
};

struct LoadedModel;

class RF_ENGINE_API Model {
 public:
  explicit Model(const std::string& model_dir, const ModelOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const ModelInfo& info() const;
  // Throws Error if a sequence of that many tokens (>= 1), at positions from 0 on, is longer than the model supports.
  void check_length(int64_t tokens) const;

  // The constant terms of its position encodings, for exporters; nullptr: none.
  std::shared_ptr<const PositionTerms> position_terms() const;

  // The last hidden states, [ids.size(), hidden_size].
  void hidden(const Tokens& tokens, float* out) const;
  // One vector for each sequence, [sequences, hidden_size].
  void pooled(const Tokens& tokens, Pooling pooling, float* out) const;
  // Several poolings, concatenated in each vector: [sequences, poolings.size() * hidden_size].
  void pooled(const Tokens& tokens, std::span<const Pooling> poolings, float* out) const;
  // Logits of the head. Sequence classification: [sequences, labels]; multiple choice: one per sequence; token
  // classification: [ids.size(), labels]; question answering: [ids.size(), 2], start and end; language models:
  // [ids.size(), vocab_size].
  void logits(const Tokens& tokens, float* out) const;
  int64_t logits_per_row() const;
  bool logits_of_tokens() const;  // rows are tokens, not sequences
  // One weight for each sequence and entry of the vocabulary of a masked language model, [sequences, vocab_size]. The
  // memory in use does not grow with tokens * vocab_size.
  void lexical(const Tokens& tokens, const LexicalPooling& pooling, float* out) const;
  // Logits of a language model at chosen tokens, [rows.size(), vocab_size]; rows: ascending indices into ids.
  void vocabulary_logits(const Tokens& tokens, std::span<const int64_t> rows, float* out) const;

 private:
  friend class Decoder;
  LoadedModel loaded() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
