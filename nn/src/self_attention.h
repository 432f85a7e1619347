// Self-attention of RoFormer (spec R-HF-05, P Eq. 34, C-11) on projected queries, keys and values:
//
//   out_m = sum_n softmax_n( (R_m q_m) . (R_n k_n) / sqrt(D) + mask(m,n) ) v_n        R_n v_n when rotary_value
//
// with R the rotation in layout `pairs`. What the whole forward pass shares (mask, positions) is built once. A query
// without a key to attend to has output 0 and gradient 0. No key/value cache, no cross-attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "rf/nn/model.h"

namespace rf::nn {

// Which key each query may attend to; undefined tensors mean "all" and cost nothing.
struct AttentionMask {
  at::Tensor attend;      // bool, broadcasts to [B,H,T,S]; every row has a key: rows without one are opened here ...
  at::Tensor alive_BT11;  // ... and silenced by this bool factor [B or 1,T,1,1] on the output
  at::Tensor bias;        // attend as 0 / -inf in the dtype of the scores, made by the first layer that needs it
};
AttentionMask make_attention_mask(const Input& input, bool is_decoder);

// Positions of a batch, and how vectors are rotated by them: by the rope operator, or by rows of a stored table.
class InputRotation {
 public:
  // table_MD: undefined, or [rows, D] with sin in the first half of a row and cos in the second.
  InputRotation(const Input& input, const at::Tensor& table_MD);
  at::Tensor operator()(const at::Tensor& x_BTHD) const;

 private:
  at::Tensor positions_;  // [T] or [B,T]
  at::Tensor sin_, cos_;  // [T,1,D/2] or [B,T,1,D/2] when a table is used
};

struct AttentionOptions {
  int64_t heads = 1;
  bool rotary_value = false;
  double dropout = 0;  // of the probabilities; 0 outside training
  DropoutKey* key = nullptr;
};

// qkv_BTC: [B,T,3*H*D], queries, keys and values of all heads one after the other. Result: [B,T,H*D].
at::Tensor attend(const at::Tensor& qkv_BTC, const InputRotation& rotation, AttentionMask& mask,
                  const AttentionOptions& options);

}  // namespace rf::nn
