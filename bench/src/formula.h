// The work of a case as torch does it, forward or with backward, and the same in float64.
#pragma once

#include "case.h"
#include "rf/rope.h"

namespace rf::bench {

// Heads of the base models.
inline constexpr int64_t kHeads = 12, kHeadDim = 64;

struct Formula {
  Tensors inputs;
  std::function<at::Tensor(const Tensors&)> output;
  at::Tensor output_gradient = {};  // undefined: forward alone
  size_t leaves = 0;                // the first so many inputs have gradients
};

// The output, and the gradients if there is an output_gradient.
Tensors evaluate(const Formula& formula);
Formula in_float64(const Formula& formula);

// `ours` and `peer`, both compared with `truth` in float64 and with the errors of `plain`.
std::vector<Side> sides(std::function<Tensors()> ours, Formula peer, Formula plain, Formula truth);
std::vector<Side> sides(std::function<Tensors()> ours, const Formula& formula);

// Rows of RoPE with base 10000, float64 [tokens, head_dim / 2], and the rotation of x [.., T, D] by them in its dtype.
struct RotationRows {
  at::Tensor cos, sin;
};
RotationRows rotation_rows(int64_t tokens, int64_t head_dim);
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, rf_rope_layout layout);

}  // namespace rf::bench
