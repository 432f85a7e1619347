// Cross-entropy of the predicted tokens (spec R-TRN-02) and its gradient in one pass over the logits:
//
//   loss            = scale * sum_n (log sum_v exp(z_nv) - z_n,label(n))
//   d loss / d z_nv = scale * (softmax(z_n)_v - [v = label(n)])
//
// in float32, by rf_cross_entropy. The gradient overwrites the logits, in their own type. There is no ignored index and
// no label smoothing.
#pragma once

#include <ATen/core/Tensor.h>

namespace rf::train {

// logits [N,V] float32 or bfloat16, contiguous, with an autograd history; labels [N] int64. A float32 scalar.
at::Tensor scaled_cross_entropy(const at::Tensor& logits_NV, const at::Tensor& labels_N, double scale);

}  // namespace rf::train
