// Row operations of a transformer by the kernels of core (core/include/rf/rows.h and linear.h have the equations):
// norms with the sum before them, GELU, and the linear layer.
//
// x: [.., C] on the CPU, float32, float64, bfloat16 or float16; slices of a larger tensor with evenly spaced rows are
// read without a copy. Parameters may be of any floating-point dtype; arithmetic is float32, float64 for float64 x.
// First derivatives only. A bad argument throws c10::ValueError, "[norm] rule, got value".
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <optional>
#include <string>
#include <string_view>

namespace rf::ops {

// y = norm(residual + dropout(x + bias)) gamma + beta; undefined tensors are left out.
struct NormOptions {
  at::Tensor bias = {};      // [C]
  at::Tensor residual = {};  // the shape of x; x's dtype or float32, which is also the result's dtype
  at::Tensor gamma = {}, beta = {};
  std::string kind = "layer";  // or "rms"
  double eps = 1e-12;
  double dropout = 0;  // the probability, as in ops::dropout, of x
  c10::SymInt seed = 0, stream = 0;
};
// The result has the shape of x. The backward keeps only the arguments.
at::Tensor norm(const at::Tensor& x, const NormOptions& options);

// gelu(x + bias); form: "erf" or "tanh".
at::Tensor gelu(const at::Tensor& x, const std::optional<at::Tensor>& bias, std::string_view form);

// act(x W^T + b): x [.., in], weight [out, in] of the dtype of x or float32, bias [out]; activation "none", "gelu_erf"
// or "gelu_tanh". Under autocast x is cast, but float32 weights and their gradients keep their dtype.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias = std::nullopt,
                  std::string_view activation = "none");

}  // namespace rf::ops
