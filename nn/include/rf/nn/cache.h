// What a causal model keeps of the tokens it has seen, so that the next ones cost no more than themselves (spec
// R-HF-10). Keys are kept rotated; where a rotation may change as its sequence grows (dynamic NTK, LongRoPE, magnitudes
// counted from its start), they are kept as they were projected. Linear attention keeps its sums instead, whose size
// does not depend on the tokens; a call whose tokens change the rotation of those before them is then an Error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rf/nn/linear_attention.h"

namespace rf::nn {

// Default: nothing seen yet. A call that throws leaves it as it was. Gradients flow through what it holds; run under
// torch.no_grad where none are wanted.
struct KeyValueCache {
  struct Layer {
    at::Tensor key_BSHD, value_BSHD;
    LinearAttentionState sums;
    at::Tensor token_numbers_BSN;                 // what the encoding has read of the tokens
    at::Tensor cross_key_BSHD, cross_value_BSHD;  // of the encoder states, projected once
  };
  std::vector<Layer> layers;      // empty before the first call
  int64_t batch = 0, tokens = 0;  // B, S
  at::Tensor positions_BS;        // [1 or B, S], or with axes [1 or B, S, axes]
  at::Tensor sequences_BS;        // -1: padding; undefined: every row is one sequence without padding
  enum class Rows { kPadded, kPacked } rows = Rows::kPadded;  // what sequences_BS says: padding, or segments
  at::Tensor encoder_mask_BS;                                 // bool, or undefined
};

// Row rows_N[i] of the batch becomes row i; a row may be taken several times, or not at all. rows_N: int64. For beam
// search, whose beams go on from those of the step before. Throws Error for linear attention.
void select_rows(KeyValueCache& cache, const at::Tensor& rows_N);

}  // namespace rf::nn
