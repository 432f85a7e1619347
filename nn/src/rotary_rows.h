// Rows of a rotation, shared by the rotary encodings, and sinusoids as tensors, both computed by
// rf/model/rotary_rows.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rf/io/strict_object.h"
#include "rf/model/rotary_rows.h"
#include "rf/nn/encoding.h"

namespace rf::nn {

// cos and sin for the tokens of one side, [1 or B, T, R/2]. dtype: of queries and keys; float64 gives float64 rows, all
// others float32. On the CPU; rows of `rope` with fixed frequencies on the tokens' device.
Rotation rotation_rows(const RotaryRows& rows, RotarySide side, const TokenPositions& tokens, at::ScalarType dtype);
// Same, for frequencies [R/2] that may be trained: gradients reach them. ids: int64 [1 or B, T].
Rotation trained_rotation_rows(const RopeSpec& spec, const at::Tensor& freqs, const at::Tensor& ids,
                               at::ScalarType dtype);

// Terms with the rotations of queries and keys.
Terms rotary_terms(const RotaryRows& rows, const Positions& positions, at::ScalarType dtype);
// The same for rotations that rows(tokens of one side) gives to both sides.
template <class Rows>
Terms rotations_of(const Positions& positions, std::string layout, const Rows& rows) {
  const Rotation query = rows(positions.query);
  return {.query = query, .key = positions.same_tokens() ? query : rows(positions.key), .layout = std::move(layout)};
}

// Sinusoids. positions: int64 or float64, any shape [..]. Result: [.., width], float64 if dtype is float64, otherwise
// float32.
at::Tensor sinusoid(const at::Tensor& positions, int64_t width, SinusoidLayout layout, at::ScalarType dtype);

// Throws Error for positions on several axes, because TokenPositions::ids keeps only the highest axis.
void require_one_axis(std::string_view where, const Positions& positions);

// An encoding whose terms are rotary_terms().
class RotaryEncoding : public LengthFreeEncoding {
 public:
  // Reads the keys of `options`; with precision float32, torch computes frequencies, cosines and sines.
  RotaryEncoding(RotaryForm form, io::StrictObject& options, const EncodingShape& shape);
  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override;
  bool changes_with_length() const override { return rows_.changes_with_length(); }

 protected:
  // Throws Error for positions without rotations: by default, for positions on several axes.
  virtual void check_positions(const Positions& positions, at::ScalarType dtype) const;

  std::string name_;  // for messages
  RotaryRows rows_;
};

// Frequencies in float32, bit for bit as in transformers: float32 [R/2], for a sequence of that many tokens.
at::Tensor float32_frequencies(const RopeSpec& spec, int64_t sequence_length);

// The keys that RotaryEncoding reads for every form, and more, for EncodingInfo.
std::vector<std::string> rotary_keys(const char* layout, std::initializer_list<const char*> more);

}  // namespace rf::nn
