// A position encoding: a function from its parameters and the positions to terms (rf/ops/terms.h), in two steps.
// shared() runs once a forward pass, terms() once a layer; gradients through both are plain autograd. Terms carry the
// positions they were made for, and attention refuses them at others. To add an encoding: a
// file in nn/posenc, its line in nn/posenc/table.cpp, a test (docs/encodings.md tells how).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rf/io/strict_object.h"
#include "rf/model/encoding_config.h"
#include "rf/nn/encoding_info.h"
#include "rf/nn/positions.h"
#include "rf/ops/terms.h"

namespace rf::nn {

using ops::DistanceTable;
using ops::Rotation;
using ops::Terms;

// What an encoding may know of the model around it.
struct EncodingShape {
  int64_t layers = 1, heads = 1, head_dim = 64;  // heads: of the queries
  int64_t hidden_size = 64;                      // C, input of the projections
  int64_t input_size = 64;                       // E, width of the input embeddings
  int64_t max_position_embeddings = 512;         // rows of tables by absolute position
  bool causal = false;
  double initializer_range = 0.02;
  int64_t vocab_size = 0;  // rows of the word embeddings; 0: not known
};

// What a layer gives to its terms: its projections, for encodings that push their tables through them, and what the
// encoding has read of its input. Weights are [H*D, C] as torch::linear takes them (k and v: [Hk*D, C]); biases may be
// undefined.
struct Projections {
  at::Tensor query_weight, key_weight, value_weight;
  at::Tensor query_bias, key_bias, value_bias;
  at::Tensor token_numbers_BSN = {};  // of token_numbers(), for all keys; undefined where numbers_per_token() is 0
  // [B,T,H,D] and [B,S,Hk,D] as they were projected, before any rotation; undefined where not reads_vectors().
  at::Tensor query_BTHD = {}, key_BSHD = {};
};

// What all layers of a forward pass share.
struct Shared {
  Terms terms;               // those that hold for every layer
  DistanceTable table;       // [1, rows, C]: vectors by distance that terms() pushes through a layer's projections
  at::Tensor rows_PLC = {};  // by position: what layer_input() takes its vectors from
  std::vector<Shared> parts = {};  // of a combination, in its order
  Positions positions = {};        // what shared() was given
  at::ScalarType dtype = at::kFloat;
  std::shared_ptr<void> in_python = {};  // what an encoding written in Python shares
};

// Which attention the terms of an encoding are right for.
enum class MadeFor { kAnyAttention, kCausal, kBidirectional };

class Encoding : public torch::nn::Module {
 public:
  // Added to the input embeddings before their layer norm (Eq. 3-4), [1 or B, T, E] of dtype; undefined when nothing
  // is.
  virtual at::Tensor input(const TokenPositions& positions, at::ScalarType dtype);
  // The word embeddings words_BTE of ids_BT as the encoding changes them, before token types and input() are added; an
  // encoding where changes_words() is false returns them as they are.
  virtual at::Tensor words(const at::Tensor& words_BTE, const at::Tensor& ids_BT,
                           const TokenPositions& positions) const;
  virtual bool changes_words() const { return false; }
  // Added to what the queries, keys and values of a layer are projected from, [1 or B, T, C]; undefined when nothing
  // is. Neither token_numbers() nor the residual connection sees it.
  virtual at::Tensor layer_input(int64_t layer, const Shared& shared) const;
  // What an encoding does that is no term of attention and that the engine does not compute, for messages; nullptr:
  // nothing.
  virtual const char* beyond_terms() const { return nullptr; }
  // dtype: of queries and keys. Throws Error for positions beyond a table, naming both numbers.
  Shared shared(const Positions& positions, at::ScalarType dtype);
  // Throws the Error of input() and shared() where a sequence has tokens >= 1 at positions 0..tokens-1 and the last is
  // beyond a table or a range; computes neither of them.
  virtual void check_length(int64_t tokens) const;
  // The longest sequence that has rows of tables which a shorter one lacks: 1 where the rows of tables are the same for
  // every length, INT64_MAX where each length adds some. Without a default: a wrong 1 would store the rows of one
  // token.
  virtual int64_t last_new_length() const = 0;
  // False where scores are q.k without 1/sqrt(D). A model then draws the projections of queries and keys with the
  // deviations 1/sqrt(D C) and 1/sqrt(C), as T5's authors do, so that scores begin with a deviation of 1.
  virtual bool scales_scores() const { return true; }
  // What the encoding reads of a layer's input hidden_BTC, for terms that depend on tokens: numbers of each token,
  // [B,T,N], which a cache keeps of earlier tokens. N is 0 for encodings of positions alone, which return undefined.
  virtual int64_t numbers_per_token() const { return 0; }
  virtual at::Tensor token_numbers(int64_t layer, const at::Tensor& hidden_BTC) const;
  // Whether terms depend on the queries and keys themselves, which a layer then gives to terms().
  virtual bool reads_vectors() const { return false; }
  // Throws Error where numbers_per_token() are not given for every key, or queries and keys where they are read.
  Terms terms(int64_t layer, const Shared& shared, const Projections& projections);
  // True when the rotation of a token may change as its sequence grows: a key/value cache then holds unrotated keys.
  virtual bool changes_with_length() const { return false; }
  // Whether the terms of packed sequences are others than those of one sequence at the same positions, so that shared()
  // must know where sequences begin and end.
  virtual bool reads_sequences() const { return changes_with_length(); }
  virtual MadeFor made_for() const { return made_for_; }
  void set_made_for(MadeFor made_for) { made_for_ = made_for; }
  // Whether a layer can use it: terms() or layer_input() give something.
  virtual bool acts_in_layers() const { return true; }

 protected:
  // What an encoding computes; the functions above add the positions. The defaults return nothing and shared.terms.
  virtual Shared compute_shared(const Positions& positions, at::ScalarType dtype);
  virtual Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections);

 private:
  MadeFor made_for_ = MadeFor::kAnyAttention;
};

// A line of the table.
struct EncodingEntry {
  EncodingInfo info;
  // Reads its keys; the caller calls finish(), so that a key nobody reads is an Error.
  std::shared_ptr<Encoding> (*make)(io::StrictObject& options, const EncodingShape& shape);
  // Where a key has no default: the keys as JSON, with values for heads of so many dimensions.
  std::string (*required_keys)(int64_t head_dim) = nullptr;

  EncodingConfig example(int64_t head_dim) const;
};

// Makes one of the table, or one that is registered in Python. Throws Error for an unknown name (with the nearest known
// one), an unknown key, a value out of range, an encoding that needs causal attention where there is none. Parameters
// are float32, drawn from torch's default generator.
std::shared_ptr<Encoding> make_encoding(const EncodingConfig& config, const EncodingShape& shape);
const EncodingEntry& encoding_entry(const std::string& name);

// Several encodings at once, for example sinusoidal input and rotation as in Performer's code: inputs are added, terms
// put together. Parameters are named <index>.<name>. terms() throws Error, naming the term, when two of them set one.
std::shared_ptr<Encoding> combine_encodings(std::vector<std::shared_ptr<Encoding>> encodings);

}  // namespace rf::nn
