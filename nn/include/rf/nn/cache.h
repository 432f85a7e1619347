// The state that a causal model keeps of seen tokens, so that a step only computes the new tokens (spec R-HF-10). Keys
// are kept rotated, unless a rotation may change as its sequence grows (dynamic NTK, LongRoPE, magnitudes counted from
// its start); then they are kept unrotated. Linear attention keeps its sums instead, whose size does not depend on the
// number of tokens; a call whose tokens change the rotation of earlier tokens is then an Error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rf/nn/linear_attention.h"

namespace rf::nn {

// Default: nothing seen yet. A call that throws does not change it. Gradients flow through its tensors; use
// torch.no_grad to avoid them.
struct KeyValueCache {
  struct Layer {
    at::Tensor key_BSHD, value_BSHD;
    LinearAttentionState sums;
    at::Tensor token_numbers_BSN;                 // token_numbers() of the tokens
    at::Tensor cross_key_BSHD, cross_value_BSHD;  // of the encoder states, projected once
  };
  std::vector<Layer> layers;      // empty before the first call
  int64_t batch = 0, tokens = 0;  // B, S
  at::Tensor positions_BS;        // [1 or B, S], or with axes [1 or B, S, axes]
  at::Tensor sequence_ids_BS;     // -1: padding; undefined: every row is one sequence without padding
  enum class Rows { kPadded, kPacked } rows = Rows::kPadded;  // meaning of sequence_ids_BS: padding, or segments
  at::Tensor encoder_mask_BS;                                 // bool, or undefined
};

}  // namespace rf::nn
