// Rows of a rotation from a RopeSpec: what the rotary encodings have in common.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "rf/io/strict_object.h"
#include "rf/model/rope_spec.h"
#include "rf/nn/encoding.h"

namespace rf::nn {

// Frequencies of the tokens of one side: [R/2], or [1 or B, 1 or T, R/2] where they differ between sequences.
struct TokenFrequencies {
  at::Tensor hi, lo;  // float64, their sum counts; precision float32: hi is float32. lo may be undefined
  double scale = 1;   // of cos and sin
  RopePrecision precision = RopePrecision::kExact;
};

class RotaryFrequencies {
 public:
  explicit RotaryFrequencies(RopeSpec spec);
  const RopeSpec& spec() const { return spec_; }
  // The frequencies of tokens, given the end of the sequence of each, [1 or B, T] (rf/nn/positions.h): a sequence has
  // the frequencies that it would have alone, whatever else is in its batch.
  TokenFrequencies of(const at::Tensor& end) const;
  // The frequencies for every length, or for lengths within the training length where a scaling depends on the length.
  const TokenFrequencies& initial() const { return initial_; }

 private:
  TokenFrequencies of_length(int64_t sequence_length) const;

  RopeSpec spec_;
  TokenFrequencies initial_;
};

// cos and sin of ids * frequencies, [1 or B, T, R/2]. ids: int64 [1 or B, T]. dtype: of queries and keys; float64 gives
// float64 rows, every other float32.
Rotation rotation_rows(const at::Tensor& ids, const TokenFrequencies& frequencies, at::ScalarType dtype);

// Throws Error for positions on several axes, of which TokenPositions::ids keeps the highest alone.
void require_one_axis(const char* where, const Positions& positions);

std::string read_layout(io::StrictObject& options, const char* fallback);
// The keys that read_rope_spec and read_layout read, for EncodingInfo.
std::vector<std::string> rotary_keys(const char* layout);

}  // namespace rf::nn
