// The encoder of a model directory, without torch: embeddings, layers of attention and feed-forward networks, on
// concatenated sequences without padding. The hidden states of a sequence have the same bits whatever other sequences a
// call contains, and for any number of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experts.h"
#include "layers.h"
#include "linear_attention.h"
#include "memory.h"
#include "position.h"
#include "rf/model/config.h"
#include "rf/model/translation_config.h"
#include "sequence_cache.h"
#include "weights.h"

namespace rf::engine {

// Which keys each query reads: rows[begins[t]] .. rows[begins[t] + counts[t] - 1].
struct KeyLists {
  std::vector<int64_t> rows, begins, counts;
  void clear() {
    for (std::vector<int64_t>* each : {&rows, &begins, &counts}) each->clear();
  }
};

// The input of cross-attention.
struct CrossInput {
  const void* keys_values = nullptr;  // of Encoder::project_source()
  int64_t tokens = 0;                 // of all sources
  const KeyLists* lists = nullptr;    // of tokens of the sources
};

// The input of a call of the encoder.
struct EncoderInput {
  Sequences sequences;
  const int32_t* ids = nullptr;       // [tokens]
  const int32_t* types = nullptr;     // [tokens], or nullptr: 0
  const uint8_t* attend = nullptr;    // [tokens], 0: no query attends to the token; nullptr: to all
  const CrossInput* cross = nullptr;  // required with cross-attention
};

// Tokens that extend cached sequences: sequence sequences[i] of its cache grows by the tokens ids[offsets[i]] ..
// ids[offsets[i + 1] - 1]. The sequences of a cache are neighbours, and ascend.
struct Extension {
  std::span<SequenceCache* const> caches;  // of each sequence, or one for all; several only of keys and values
  std::span<const int64_t> sequences;
  std::span<const int64_t> offsets;  // [sequences.size() + 1], rising from 0
  const int32_t* ids = nullptr;
  const CrossInput* cross = nullptr;  // as EncoderInput::cross
  int64_t tokens() const { return offsets.back(); }
  SequenceCache& cache(size_t i) const { return *caches[caches.size() == 1 ? 0 : i]; }
  int64_t length(size_t i) const { return cache(i).length(sequences[i]); }  // before
};

// The memory of one call, kept for the next.
class Workspace {
 public:
  // Buffer i of at least that many bytes, aligned to 64. Growing it loses its contents.
  void* buffer(int index, int64_t bytes);
  PositionRows rows;
  FeatureMemory features;
  Experts::Memory experts;
  std::vector<LayerInputs>* measured = nullptr;  // of each layer, which a call of float32 raises; nullptr: not wanted

  // Neighbours in an extension and in the cache, with as many tokens: attention computes them in one call.
  struct Group {
    int64_t first = 0, count = 0;  // in the extension
    SequenceCache* cache = nullptr;
    int64_t tokens = 0, keys = 0;  // of each sequence: new tokens; new and earlier tokens
    PositionRows rows;             // of the keys
  };
  std::vector<Group> groups;  // of the last extension, as many as `used_groups`
  size_t used_groups = 0;
  std::vector<int64_t> prefixes;          // of the sequences of a prefix language model
  std::vector<int32_t> types;             // of new tokens, where they have any
  std::vector<int64_t> positions;         // of new tokens
  std::vector<int64_t> counting;          // 0, 1, ..
  std::vector<int64_t> joined_positions;  // of a query for each head of a key head
  std::vector<float> joined_rotation;
  std::vector<float> log_sums;  // of attention with sinks
  KeyLists lists;               // of rows of a cache

 private:
  struct Buffer {
    AlignedMemory memory;
    int64_t bytes = 0;
  };
  Buffer buffers_[6];
};

// The attention of a layer; made by std::cref, which allocates no memory.
using Attend = std::function<void(int64_t layer, const void* qkv, void* out)>;

class Encoder {
 public:
  // prefix: of the encoder's names in `weights`. inputs: of measure_inputs(); absent for int8: measured here, which
  // cross-attention does not allow.
  Encoder(const ModelConfig& config, const std::string& model_dir, const Weights& weights, const std::string& prefix,
          Precision precision, const std::function<void(const std::string&)>& warn,
          std::vector<LayerInputs> inputs = {});

  rf_dtype dtype() const { return dtype_; }
  // Makes hidden states the sum of the outputs of the embeddings and of each layer, with these weights.
  void set_layer_weights(std::vector<float> weights);
  // Of make_cache(). Throws Error with linear attention.
  void set_cache_precision(CachePrecision precision);
  const Position& position() const { return *position_; }
  // Throws Error for ids, types and positions out of range.
  void check(const EncoderInput& input) const;
  // The hidden states of all tokens, [tokens, hidden_size] of dtype(), in `work` until its next use. The input must
  // have been checked.
  void* encode(const EncoderInput& input, Workspace& work) const;

  // A cache for this model, which must attend to earlier tokens only: keys and values, or the sums of linear attention.
  // Throws Error for linear attention if a rotation may change within `capacity` tokens.
  std::unique_ptr<SequenceCache> make_cache(int64_t sequences, int64_t capacity) const;
  // Whether a cache may be SharedRows: attention has no term but a rotation that stays as sequences grow to `tokens`.
  bool may_share_rows(int64_t tokens) const;
  SharedRows::Shape shared_shape(int64_t sequences) const {
    return {config_.num_hidden_layers, config_.hidden_size, bytes_of(dtype_), sequences};
  }
  // Throws Error for ids out of range.
  void check_ids(std::span<const int32_t> ids) const;
  // Throws Error if a sequence of `tokens` tokens is beyond a table or a range.
  void check_length(int64_t tokens) const;
  // The hidden states of the new tokens, as encode() gives them; also appends the tokens to the caches of make_cache().
  // Ids and lengths must have been checked, and the caches must have room. If it throws, the caches are unchanged; but
  // with linear attention the sequences of `input` become empty, because some layers may have added their tokens.
  void* extend(const Extension& input, Workspace& work) const;

  // The input of cross-attention from encoded sentences, [tokens, hidden_size]: keys and values [layers, tokens, 2
  // hidden_size].
  AlignedMemory project_source(const void* states, int64_t tokens) const;

  // On random tokens, in float32: elements that are always large in a model's vectors are large for every text. source:
  // the encoder whose states cross-attention reads.
  std::vector<LayerInputs> measure_inputs(const Encoder* source = nullptr) const;

 private:
  // A length up to `most` that the position encoding reads.
  int64_t readable_length(int64_t most) const;

  void embed(const EncoderInput& input, Workspace& work, void* x) const;
  // Of each token's word embedding, for models with ModelConfig::dropped_id; else empty.
  std::vector<float> word_scales(const EncoderInput& input) const;
  // The norms of queries, keys and values, in place.
  void norm_heads(int64_t layer, const Block& block, int64_t tokens, void* qkv) const;
  // Computes a layer's addition from its separate input, a projection of `embeddings`.
  void layer_input(const Block& block, int64_t tokens, const void* embeddings, const void* x, void* wide,
                   void* y) const;
  // x = norm(x + activation(convolution(embeddings))); the convolution reads zeros outside a sequence and for masked
  // tokens.
  void convolve(const EncoderInput& input, const void* embeddings, void* x, void* wide, void* narrow) const;
  void feed_forward(const Block& block, int64_t tokens, const void* x, void* wide, void* y) const;
  void listed_attention(const void* q, int64_t q_stride, const char* keys, int64_t key_rows, int64_t kv_stride,
                        const KeyLists& lists, void* out) const;
  // x = norm(x + output(attention)), with work space of a row for each token in `wide` and `narrow`.
  void cross_attention(int64_t layer, const EncoderInput& input, void* x, void* wide, void* narrow) const;
  // Embeddings and layers.
  void* forward(const EncoderInput& input, Workspace& work, const Attend& attend) const;
  // Arguments that all calls of a layer have.
  rf_attention_args attention_args(int64_t layer, const void* qkv, void* out) const;
  // Softmax attention, with the layer's sinks.
  void run_attention(int64_t layer, rf_attention_args& args, Workspace& work) const;
  // The distance that attention of a layer reaches, as LayerSpec::window.
  int64_t window(int64_t layer) const {
    return config_.layers.empty() ? 0 : config_.layers[static_cast<size_t>(layer)].window;
  }
  // The arguments of attention within the sequences of a call.
  rf_attention_args packed_args(int64_t layer, const EncoderInput& input, const PositionRows& rows, const void* qkv,
                                void* out) const;

  // How many tokens each sequence of a prefix language model has before its first of another type than 0; nullptr for
  // other models.
  const int64_t* prefixes(const EncoderInput& input, Workspace& work) const;

  // Adds hidden states x to the weighted sum; after the last states, x becomes the sum.
  void mix(size_t state, int64_t elements, void* x, Workspace& work) const;

  // extend() for a KeyValueCache, SharedRows and LinearStates. tokens: the new ones.
  void* extend_rows(const Extension& input, const EncoderInput& tokens, Workspace& work) const;
  void* extend_shared(const Extension& input, const EncoderInput& tokens, SharedRows& cache, Workspace& work) const;
  void* extend_sums(const Extension& input, const EncoderInput& tokens, LinearStates& states, Workspace& work) const;
  void attend(int64_t layer, const Extension& input, const Workspace::Group& group, Workspace& work, const void* qkv,
              void* out) const;

  // Columns of a row of queries, keys and values, and of one of results.
  // Layers of a decoder are as wide as the first.
  int64_t qkv_width(int64_t layer = 0) const { return config_.query_width(layer) + 2 * config_.key_width(layer); }
  int64_t out_width(int64_t layer = 0) const { return config_.query_width(layer); }
  double attention_scale() const {
    const double given = config_.block.attention_scale;
    return given > 0 ? given : 1 / std::sqrt(static_cast<double>(config_.head_dim()));
  }

  ModelConfig config_;
  rf_dtype dtype_;
  rf_cache_type cache_type_ = RF_CACHE_SAME;
  std::unique_ptr<Position> position_;
  std::optional<LinearAttention> linear_;
  ReadRow words_;
  MappedRows types_, tasks_;           // empty: none
  float word_scale_ = 1;               // of words_, before types_ are added
  Norm embeddings_norm_, final_norm_;  // without columns: none
  Linear output_projection_;           // of the last hidden states; empty: none
  Linear embeddings_project_;          // empty where embedding_size == hidden_size
  Linear convolution_;                 // of the embeddings; empty: none
  Norm convolution_norm_;
  std::vector<Block> blocks_;
  std::vector<float> layer_weights_;  // empty: hidden states are the last layer's output
  std::vector<Experts> experts_;      // of each block; empty: none
};

}  // namespace rf::engine
