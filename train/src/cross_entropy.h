// Cross-entropy of the predicted tokens (spec R-TRN-02), of training and of evaluation:
//
//   loss            = scale * sum_n (log sum_v exp(z_nv) - z_n,label(n))
//   d loss / d z_nv = scale * (softmax(z_n)_v - [v = label(n)])
//
// in float32, on the CPU by rf_cross_entropy, on other devices by torch. With label smoothing e (Szegedy et al. 2016,
// arXiv 1512.00567, section 7) the target is 1 - e at the label and e more spread evenly over all V classes:
//
//   loss            = .. + scale * e * sum_n (z_n,label(n) - mean_v z_nv)
//   d loss / d z_nv = .. + scale * e * ([v = label(n)] - 1/V)
//
// No index is ignored. logits: [N,V], float32 or bfloat16, contiguous; labels: [N], int64.
#pragma once

#include <ATen/core/Tensor.h>

namespace rf::train {

// The sum over n, nats.
double summed_cross_entropy(const at::Tensor& logits_NV, const at::Tensor& labels_N);
// A float32 scalar with a gradient, which on the CPU overwrites the logits, in their own type: they have an autograd
// history.
at::Tensor scaled_cross_entropy(const at::Tensor& logits_NV, const at::Tensor& labels_N, double scale,
                                double label_smoothing = 0);

}  // namespace rf::train
