// The loss of vectors of pairs of similar texts against the other texts of a batch, as in the training of SimBERT and
// RoFormer-Sim (kexue.fm/archives/7427, kexue.fm/archives/8454; R-VAR-06).
//
//   s_ij = scale * u_i . u_j,  u = v / |v|,  s_ii = -1e12 * scale       loss = mean_i( logsumexp_j s_ij - s_i,p(i) )
//
// Rows 2k and 2k+1 are the texts of pair k: p(i) = i + 1 - 2 (i mod 2).
#pragma once

#include <ATen/core/Tensor.h>

namespace rf::nn {

inline constexpr double kSimilarityScale = 20;

// vectors: [B, C], B even and at least 2, of any floating-point dtype; the result is a scalar of that dtype with
// derivatives of any order. Throws Error otherwise.
at::Tensor similarity_loss(const at::Tensor& vectors_BC, double scale = kSimilarityScale);

}  // namespace rf::nn
