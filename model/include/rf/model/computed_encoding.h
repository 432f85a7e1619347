// Encodings whose vectors, rotations and tables depend only on config.json and a position, so a program without torch
// can compute them. The terms of all other encodings are stored when a model is saved (rf/model/position_terms.h).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "rf/model/config.h"
#include "rf/model/rotary_rows.h"

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

// nullopt for an encoding with stored terms, and for an unknown name. Throws Error for an unknown key and a value out
// of range.
std::optional<ComputedEncoding> computed_encoding(const EncodingConfig& encoding, const ModelConfig& config);

// The factor by which the model's encodings multiply word embeddings. Throws Error if two encodings set it.
double word_scale(const ModelConfig& config);

// Throws Error if an encoding scales scores by log n and attention is linear: without scores, the factor would
// scale its outputs.
void check_no_log_n(const ModelConfig& config);

// Whether the model's directory must contain position_terms.safetensors: for an encoding that is not computed, or a
// rotation of precision float32 with fixed frequencies.
bool needs_position_terms(const ModelConfig& config);

// Reads "max_position_embeddings" for an encoding with a table of positions.
int64_t read_table_positions(io::StrictObject& options, int64_t max_position_embeddings);

}  // namespace rf
