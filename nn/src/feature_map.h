// The feature maps f (queries) and g (keys) of linear attention (rf/nn/linear_attention.h), x one vector of D elements:
//
//   elu            f = g = elu(x) + 1                                       Katharopoulos et al., arXiv 2006.16236
//   shen_original  f = softmax(x), g = exp(x) / sum over keys of exp(x)     Shen et al., arXiv 1812.01243
//   shen           f = softmax(x), g = exp(x)                               Eq. 18's reading of it: not the same
//   favor          f = g = (exp(w_j.x' - |x'|^2 / 2) + eps) / sqrt(m)       Choromanski et al., arXiv 2009.14794
//   relu           f = g = relu(w_j.x') + eps                               the same, section on generalized attention
//   cosine         f = g = (x / |x|, 1), so f.g = 1 + cos                   kexue.fm/archives/8265
//
// with x' = sqrt(s) x, s = 1/sqrt(D) unless the terms have a scale, and w_j the rows of the projection. Products f.g
// are not scaled otherwise. favor and shen divide their exponentials by that of a maximum, which leaves the quotient of
// the two sums as it is but for favor's eps and one added to the denominator: favor's f by its own largest w_j.x', g by
// the largest over the features and the keys; over the keys up to its own when causal, the sums being rescaled from key
// to key (its eps with them).
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/nn/linear_attention.h"

namespace rf::nn {

// What stands for the maximum over no key: finite, so that differences of two of them are no NaN, and as far below
// every other number as exponentials need to be 0.
inline double lowest_maximum(at::ScalarType dtype) {
  return dtype == at::kDouble ? -8e307 : -1.5e38;
}

struct MapInput {
  at::Tensor x_BTHD;
  at::Tensor projection_FD;  // favor, relu
  double scale = 1;          // s
};

// [B,T,H,F].
at::Tensor query_features(const LinearAttentionConfig& config, const MapInput& queries);

struct KeyFeatures {
  at::Tensor rows_BSHF;    // g, 0 for masked keys
  at::Tensor maximum_BSH;  // causal shen and favor: g of key n is divided by the exponential of this; else undefined
};
// mask_BS: bool or undefined. earlier_BH: the maximum of keys that came before, or undefined.
KeyFeatures key_features(const LinearAttentionConfig& config, const MapInput& keys, const at::Tensor& mask_BS,
                         Direction direction, const at::Tensor& earlier_BH);

}  // namespace rf::nn
