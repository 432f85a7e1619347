// The encodings whose vectors, rotations and tables follow from config.json and a position alone, so that a program
// without torch computes them when it needs them. The terms of all others are stored when a model is saved
// (rf/model/position_terms.h).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "rf/model/config.h"
#include "rf/model/rotary_rows.h"
#include "rf/model/sinusoid.h"

namespace rf {

struct NoPosition {};
struct LearnedInput {
  int64_t positions = 0;  // rows of the trained tensor "weight"
};
struct SinusoidalInput {
  SinusoidLayout layout = SinusoidLayout::kInterleaved;
  bool scale_embedding = false;  // word embeddings are multiplied by sqrt(E) (Vaswani et al. 2017 section 3.4)
};
SinusoidalInput read_sinusoidal(io::StrictObject& options);
struct NezhaTable {
  int64_t clip = 0;
};
using ComputedEncoding = std::variant<NoPosition, LearnedInput, SinusoidalInput, NezhaTable, RotarySettings>;

// nullopt for an encoding whose terms are stored, and for a name that is not known here. Throws Error for an unknown
// key and a value out of range.
std::optional<ComputedEncoding> computed_encoding(const EncodingConfig& encoding, const ModelConfig& config);

// What the encodings of the model multiply word embeddings by. Throws Error where two of them do.
double word_scale(const ModelConfig& config);

// Throws Error where an encoding scales scores by log n: linear attention, which has no scores, would scale its
// outputs.
void check_no_log_n(const ModelConfig& config);

// Whether the model's directory must have position_terms.safetensors: it has an encoding that is not computed, or a
// rotation of precision float32 whose frequencies are not trained.
bool needs_position_terms(const ModelConfig& config);

// Reads "max_position_embeddings" of an encoding that has a table of positions.
int64_t read_table_positions(io::StrictObject& options, int64_t max_position_embeddings);

}  // namespace rf
