// Evaluation of a formula by torch (formula.h).
#include "formula.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

namespace rf::bench {

Tensors evaluate(const Formula& formula) {
  if (!formula.output_gradient.defined()) {
    const at::NoGradGuard no_grad;
    return {formula.output(formula.inputs)};
  }
  Tensors inputs = formula.inputs, leaves;
  for (size_t i = 0; i < formula.leaves; ++i) {
    inputs[i] = inputs[i].detach().requires_grad_();
    leaves.push_back(inputs[i]);
  }
  const at::Tensor output = formula.output(inputs);
  Tensors results = torch::autograd::grad({output}, leaves, {formula.output_gradient});
  results.insert(results.begin(), output.detach());
  return results;
}

Formula in_float64(const Formula& formula) {
  Formula wide = formula;
  for (at::Tensor& input : wide.inputs) input = input.to(at::kDouble);
  if (wide.output_gradient.defined()) wide.output_gradient = wide.output_gradient.to(at::kDouble);
  return wide;
}

std::vector<Side> sides(std::function<Tensors()> ours, Formula peer, Formula plain, Formula truth) {
  Side own = {"ours", std::move(ours), [truth = std::move(truth)] { return evaluate(in_float64(truth)); }};
  own.plain = [plain = std::move(plain)] { return evaluate(plain); };
  return {own, {"torch", [peer = std::move(peer)] { return evaluate(peer); }, {}, When::kWithPeers}};
}

std::vector<Side> sides(std::function<Tensors()> ours, const Formula& formula) {
  return sides(std::move(ours), formula, formula, formula);
}

RotationRows rotation_rows(int64_t tokens, int64_t head_dim) {
  const at::Tensor pairs = at::arange(0, head_dim, 2, at::kDouble) / static_cast<double>(head_dim);
  const at::Tensor angles = at::arange(tokens, at::kDouble).unsqueeze(-1) * at::pow(10000.0, -pairs);
  return {at::cos(angles), at::sin(angles)};
}

at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, rf_rope_layout layout) {
  const int64_t half = x.size(-1) / 2;
  const bool pairs = layout == RF_ROPE_PAIRS;
  const at::Tensor a = pairs ? x.slice(-1, 0, std::nullopt, 2) : x.slice(-1, 0, half);
  const at::Tensor b = pairs ? x.slice(-1, 1, std::nullopt, 2) : x.slice(-1, half);
  const Tensors rotated_elements = {a * cos - b * sin, a * sin + b * cos};
  return pairs ? at::stack(rotated_elements, -1).flatten(-2) : at::cat(rotated_elements, -1);
}

}  // namespace rf::bench
