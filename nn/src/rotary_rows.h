// Rows of a rotation as tensors, shared by the rotary encodings. rf/model/rotary_rows.h computes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "rf/io/strict_object.h"
#include "rf/model/rotary_rows.h"
#include "rf/nn/encoding.h"

namespace rf::nn {

// Reads the keys of `options`; with precision float32, torch computes frequencies, cosines and sines.
RotaryRows make_rotary_rows(RotaryForm form, io::StrictObject& options, const EncodingShape& shape);

// cos and sin for the tokens of one side, [1 or B, T, R/2]. dtype: of queries and keys; float64 gives float64 rows, all
// others float32.
Rotation rotation_rows(const RotaryRows& rows, RotarySide side, const TokenPositions& tokens, at::ScalarType dtype);
// Same, for frequencies [R/2] that may be trained: gradients reach them. ids: int64 [1 or B, T].
Rotation trained_rotation_rows(const RopeSpec& spec, const at::Tensor& freqs, const at::Tensor& ids,
                               at::ScalarType dtype);

// Terms with the rotations of queries and keys.
Terms rotary_terms(const RotaryRows& rows, const Positions& positions, at::ScalarType dtype);

// Throws Error for positions on several axes, because TokenPositions::ids keeps only the highest axis.
void require_one_axis(const char* where, const Positions& positions);

// The keys that make_rotary_rows reads for every form, for EncodingInfo.
std::vector<std::string> rotary_keys(const char* layout);

}  // namespace rf::nn
