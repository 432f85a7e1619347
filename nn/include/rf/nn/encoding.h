// A position encoding: a function from its parameters and the positions to terms (rf/ops/terms.h), in two steps.
// shared() runs once per forward pass, terms() once per layer; gradients through both are plain autograd. Terms store
// the positions they were made for, and attention refuses them at other positions. To add an encoding, you need a file
// in nn/posenc, its line in nn/posenc/table.cpp and a test (docs/encodings.md explains how).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rf/io/strict_object.h"
#include "rf/model/config.h"
#include "rf/nn/encoding_info.h"
#include "rf/nn/positions.h"
#include "rf/ops/terms.h"

namespace rf::nn {

using ops::DistanceTable;
using ops::Rotation;
using ops::Terms;

// The facts about the model that an encoding may use.
struct EncodingShape {
  int64_t layers = 1, heads = 1, head_dim = 64;  // heads: of the queries
  int64_t hidden_size = 64;                      // C, input of the projections
  int64_t input_size = 64;                       // E, width of the input embeddings
  int64_t max_position_embeddings = 512;         // rows of tables by absolute position
  int64_t first_row = 0;                         // of a table of trained positions: the row of position 0
  bool causal = false;
  double initializer_range = 0.02;
  int64_t vocab_size = 0;  // rows of the word embeddings; 0: not known
};

// The inputs of a layer's terms: its projections, for encodings that project their tables, and the numbers that the
// encoding computed from the layer's input. Weights are [H*D, C], as in torch::linear (k and v: [Hk*D, C]); biases may
// be undefined.
struct Projections {
  at::Tensor query_weight, key_weight, value_weight;
  at::Tensor query_bias, key_bias, value_bias;
  at::Tensor token_numbers_BSN = {};  // of token_numbers(), for all keys; undefined if numbers_per_token() is 0
  // [B,T,H,D] and [B,S,Hk,D] after the projection, before any rotation; undefined unless reads_vectors().
  at::Tensor query_BTHD = {}, key_BSHD = {};
};

// Data shared by all layers of a forward pass.
struct Shared {
  Terms terms = {};          // terms of all layers
  DistanceTable table = {};  // [1, rows, C]: vectors by distance that terms() multiplies with a layer's projections
  at::Tensor rows_PLC = {};  // by position: the source of layer_input()'s vectors
  std::vector<Shared> parts = {};  // of a combination, in its order
  Positions positions = {};        // what shared() was given
  at::ScalarType dtype = at::kFloat;
  std::shared_ptr<void> in_python = {};  // data of an encoding written in Python
};

// The attention for which the terms of an encoding are valid.
enum class MadeFor { kAnyAttention, kCausal, kBidirectional };

class Encoding : public torch::nn::Module {
 public:
  // Added to the input embeddings before their layer norm (Eq. 3-4), [1 or B, T, E] of dtype, on the device of the
  // parameters or on the CPU; undefined if nothing is added.
  virtual at::Tensor input(const TokenPositions& /*positions*/, at::ScalarType /*dtype*/) { return {}; }
  // Changes the word embeddings words_BTE of ids_BT, before token types and input() are added; returns them unchanged
  // if changes_words() is false.
  virtual at::Tensor words(const at::Tensor& words_BTE, const at::Tensor& /*ids_BT*/,
                           const TokenPositions& /*positions*/) const {
    return words_BTE;
  }
  virtual bool changes_words() const { return false; }
  // Added to the input of a layer's query, key and value projections, [1 or B, T, C]; undefined if nothing is added.
  // Neither token_numbers() nor the residual connection contains it.
  virtual at::Tensor layer_input(int64_t /*layer*/, const Shared& /*shared*/) const { return {}; }
  // An action of the encoding outside of attention that the engine does not support, for messages; nullptr: none.
  virtual const char* beyond_terms() const { return nullptr; }
  // dtype: of queries and keys. Throws Error for positions beyond a table, naming both numbers. Tensors computed only
  // from positions may be on the CPU; shared() and terms() move them to the positions' device.
  Shared shared(const Positions& positions, at::ScalarType dtype);
  // Throws the Error of input() and shared() if the last of the positions 0..tokens-1, tokens >= 1, is beyond a table
  // or a range, without computing either.
  virtual void check_length(int64_t /*tokens*/) const {}
  // The longest sequence whose tables have rows that shorter sequences lack: 1 if tables do not depend on the length,
  // INT64_MAX if every length adds rows. There is deliberately no default: a wrong 1 would store the rows of one token.
  virtual int64_t last_new_length() const = 0;
  // False if scores are q.k without 1/sqrt(D). A model then draws the projections of queries and keys with the
  // deviations 1/sqrt(D C) and 1/sqrt(C), as T5's authors do, so that initial scores have a deviation of 1.
  virtual bool scales_scores() const { return true; }
  // Numbers per token, [B,T,N], computed from a layer's input hidden_BTC for terms that depend on tokens; a cache keeps
  // them for earlier tokens. N is 0 for encodings that only use positions, which return undefined.
  virtual int64_t numbers_per_token() const { return 0; }
  virtual at::Tensor token_numbers(int64_t /*layer*/, const at::Tensor& /*hidden_BTC*/) const { return {}; }
  // Whether terms depend on the queries and keys, which a layer then passes to terms().
  virtual bool reads_vectors() const { return false; }
  // Whether terms depend on the weights of the layer's projections, which low-rank adapters change.
  virtual bool reads_projections() const { return false; }
  // Throws Error if numbers_per_token() numbers are not given for every key, or if required queries and keys are
  // missing.
  Terms terms(int64_t layer, const Shared& shared, const Projections& projections);
  // True if the rotation of a token may change as its sequence grows; a key/value cache then holds unrotated keys.
  virtual bool changes_with_length() const { return false; }
  // Whether terms of packed sequences differ from terms of one sequence at the same positions, so that shared() must
  // know where sequences begin and end.
  virtual bool reads_sequences() const { return changes_with_length(); }
  virtual MadeFor made_for() const { return made_for_; }
  void set_made_for(MadeFor made_for) { made_for_ = made_for; }
  // Whether a layer can use it: terms() or layer_input() return something.
  virtual bool acts_in_layers() const { return true; }

 protected:
  // The implementation of an encoding; the functions above add the positions. The defaults return nothing and
  // shared.terms.
  virtual Shared compute_shared(const Positions& /*positions*/, at::ScalarType /*dtype*/) { return {}; }
  virtual Terms compute_terms(int64_t /*layer*/, const Shared& shared, const Projections& /*projections*/) {
    return shared.terms;
  }

 private:
  MadeFor made_for_ = MadeFor::kAnyAttention;
};

// An encoding whose tables do not depend on the length of a sequence.
class LengthFreeEncoding : public Encoding {
 public:
  int64_t last_new_length() const override { return 1; }
};

// An encoding with a row for every distance.
class DistanceEncoding : public Encoding {
 public:
  void check_length(int64_t tokens) const override { distance_range(ends_of_sequence(tokens)); }
  int64_t last_new_length() const override { return INT64_MAX; }
};

// The terms on a device; positions, which they were made for, stay where they are.
Terms terms_on(Terms terms, at::Device device);

// A line of the table.
struct EncodingEntry {
  EncodingInfo info;
  // Reads its keys; the caller calls finish(), so that an unread key is an Error.
  std::shared_ptr<Encoding> (*make)(io::StrictObject& options, const EncodingShape& shape);
  // For encodings with keys without a default: these keys as JSON, with values for heads of the given size.
  std::string (*required_keys)(int64_t head_dim) = nullptr;

  EncodingConfig example(int64_t head_dim) const;
};

// EncodingEntry::make for a class whose constructor takes kFixed, options and shape.
template <class T, auto... kFixed>
std::shared_ptr<Encoding> construct(io::StrictObject& options, const EncodingShape& shape) {
  return std::make_shared<T>(kFixed..., options, shape);
}

// Creates an encoding of the table, or one registered in Python. Throws Error for an unknown name (with the nearest
// known name), an unknown key, a value out of range, or an encoding that needs causal attention in a bidirectional
// model. Parameters are float32, drawn from torch's default generator.
std::shared_ptr<Encoding> make_encoding(const EncodingConfig& config, const EncodingShape& shape);
const EncodingEntry& encoding_entry(const std::string& name);

// Several encodings together, for example sinusoidal input and rotation as in Performer's code: inputs are added, terms
// combined. Parameters are named <index>.<name>. terms() throws Error, naming the term, if two encodings set the same
// term.
std::shared_ptr<Encoding> combine_encodings(std::vector<std::shared_ptr<Encoding>> encodings);

}  // namespace rf::nn
