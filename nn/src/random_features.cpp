// Random vectors for the feature maps of Performers (Choromanski et al., arXiv 2009.14794, section 3; R-LIN-04):
// independent N(0, 1) rows, or blocks of D orthogonal rows, each block uniform over all rotations, with the lengths of
// Gaussian vectors or sqrt(D).
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "rf/io/error.h"
#include "rf/nn/linear_attention.h"

namespace rf::nn {

// Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014): maps neighbouring inputs to unrelated
// numbers; the same on every machine.
uint64_t splitmix(uint64_t x) {
  x += kSplitmixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

namespace {

// Rows of an orthogonal matrix, uniformly distributed. The factor Q alone is not uniform, because its signs depend on
// the algorithm (Mezzadri, "How to generate random matrices from the classical compact groups", 2007).
at::Tensor orthogonal_block(const at::Tensor& gaussian_DD) {
  const auto [q_DD, r_DD] = at::linalg_qr(gaussian_DD);
  return (q_DD * r_DD.diagonal().sign()).t();
}

}  // namespace

at::Tensor draw_features(int64_t num_features, int64_t head_dim, const FeatureDraw& draw) {
  if (num_features < 1 || head_dim < 1) {
    fail("linear_attention", "num_features and head_dim must be positive, got {} and {}", num_features, head_dim);
  }
  uint64_t key = 0;
  for (const int64_t part : {draw.seed, draw.layer, draw.redraw}) key = splitmix(key ^ static_cast<uint64_t>(part));
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(key);
  const auto gaussian = [&](int64_t rows) {
    return at::randn({rows, head_dim}, generator, at::TensorOptions().dtype(at::kDouble));
  };
  if (!draw.orthogonal) return gaussian(num_features);
  std::vector<at::Tensor> blocks;
  for (int64_t first = 0; first < num_features; first += head_dim) {
    blocks.push_back(orthogonal_block(gaussian(head_dim)).narrow(0, 0, std::min(head_dim, num_features - first)));
  }
  const at::Tensor directions = at::cat(blocks);
  if (draw.orthogonal_scaling == 1) return directions * std::sqrt(static_cast<double>(head_dim));
  return directions * at::linalg_vector_norm(gaussian(num_features), 2, {-1}, /*keepdim=*/true);
}

}  // namespace rf::nn
