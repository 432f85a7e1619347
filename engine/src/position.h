// A model's position encodings, for packed sequences: vectors added to the input, rows of rotations, and terms of
// attention (rf/attention_terms.h). Nothing is trained here, so terms are constants of the checkpoint. They are read
// from its position_terms.safetensors (rf/model/position_terms.h); the encodings in rf/model/computed_encoding.h are
// computed instead, by the routines of nn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rf/attention.h"
#include "rf/model/config.h"
#include "rf/model/position_terms.h"
#include "rf/model/rotary_rows.h"
#include "weights.h"

namespace rf::engine {

// The tokens of concatenated sequences: sequence i is tokens cu_seqlens[i] .. cu_seqlens[i + 1] - 1.
struct Sequences {
  int64_t tokens = 0, count = 0;
  const int64_t* cu_seqlens = nullptr;  // [count + 1]
  const int64_t* positions = nullptr;   // [tokens], >= 0
  const int32_t* ids = nullptr;         // [tokens], or nullptr: none is padding
};

// Calls visit(begin, end, first, last) for the tokens of each sequence, with its lowest and highest position.
template <class Visit>
void for_sequences(const Sequences& sequences, const Visit& visit) {
  for (int64_t i = 0; i < sequences.count; ++i) {
    const int64_t begin = sequences.cu_seqlens[i], end = sequences.cu_seqlens[i + 1];
    if (begin == end) continue;
    const auto [first, last] = std::minmax_element(sequences.positions + begin, sequences.positions + end);
    visit(begin, end, *first, *last);
  }
}

// Rows of rotations of the tokens of one call; kept from call to call, so that memory is taken once.
struct PositionRows {
  std::vector<float> query_cos, query_sin, key_cos, key_sin;  // the key's are empty if they equal the query's
  std::vector<int64_t> first, end;  // lowest position of each token's sequence, and one past its highest; where needed
  std::vector<PositionRows> rotations;  // of each rotation, in models whose layers differ
  std::vector<float> key_scores;        // of ALiBi, [heads, tokens]
};

// The rows of a rotation from a token on.
inline rf_attention_rotation rotation_from(const rf_attention_rotation& rotation, int64_t token) {
  if (rotation.cos == nullptr) return {};
  const int64_t before = token * rotation.pairs;
  return {static_cast<const float*>(rotation.cos) + before, static_cast<const float*>(rotation.sin) + before, 1,
          rotation.pairs};
}

class Position {
 public:
  // warn: takes messages. prefix: of the encoder's names.
  static std::unique_ptr<Position> open(const ModelConfig& config, const std::string& model_dir, const Weights& weights,
                                        const std::string& prefix, const std::function<void(const std::string&)>& warn);
  virtual ~Position() = default;

  // Throws Error if a position is beyond a table or a range.
  virtual void check(const Sequences& /*sequences*/) const {}
  // Adds to the embeddings x [tokens, width] before their layer norm.
  virtual void add_input(const Sequences& /*sequences*/, float* /*x*/, int64_t /*width*/) const {}
  // Computes the rows that all layers of a call share.
  virtual void prepare(const Sequences& /*sequences*/, PositionRows& /*rows*/) const {}
  // Sets the terms of a layer, whose rotations are `rows`.
  virtual void set_terms(int64_t /*layer*/, const PositionRows& /*rows*/, rf_attention_args& /*args*/) const {}
  // The terms that are constants of the checkpoint; nullptr: none.
  virtual std::shared_ptr<const PositionTerms> terms() const { return nullptr; }
  // Whether the rotation of a token may change while its sequence grows to the given number of tokens.
  virtual bool changes_within(int64_t /*tokens*/) const { return false; }
};

// The parts of a model's position: one per encoding, or one for the terms of all encodings.
// A trained vector for each position, added to the input. spec: the first row, and the row of padding.
std::unique_ptr<Position> make_learned(MappedRows table, int64_t width, const PositionSpec& spec = {});
// Sinusoids of the position, added to the input.
std::unique_ptr<Position> make_sinusoidal(SinusoidLayout layout, int64_t width);

// owner: of `terms`. model_dir: for messages.
std::unique_ptr<Position> make_constant_terms(const PositionTerms& terms, std::shared_ptr<const void> owner,
                                              const std::string& model_dir);
// Terms by distance of PositionSpec. prefix: of the encoder's names.
std::unique_ptr<Position> make_relative(const ModelConfig& config, const std::string& model_dir, const Weights& weights,
                                        const std::string& prefix);

std::unique_ptr<Position> make_rotary(RotaryRows rows);
// Layer i has rotation layers[i].rotation of `rotations`.
std::unique_ptr<Position> make_layer_rotations(const std::vector<RotarySettings>& rotations,
                                               const std::vector<LayerSpec>& layers);
// By the rows of a checkpoint's own table [rows, dim]: sines in the first half of a row, cosines in the second; pairs
// (2i, 2i + 1).
std::unique_ptr<Position> make_stored_rotation(std::vector<float> table, int64_t dim);

}  // namespace rf::engine
