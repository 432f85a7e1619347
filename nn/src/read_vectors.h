// Queries and keys for encodings whose numbers for pairs of tokens depend on both.
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/nn/encoding.h"

namespace rf::nn {

// float32 or float64, with one key head per query head.
struct ReadVectors {
  at::Tensor q_BTHD, k_BSHD;
};
// Throws Error for vectors whose size is not head_dim.
ReadVectors read_vectors(const char* where, const Projections& given, int64_t head_dim);

}  // namespace rf::nn
