// The layers of a model (layers.h) for Python: torch.ops.roformer.linear_layer, norm_layer and activate. Composed of
// differentiable operators.
#include <torch/library.h>

#include "layers.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

Parameter parameter_of(const MaybeTensor& x) { return Parameter(x.value_or(at::Tensor())); }

Activation activation_of(std::string_view name) {
  if (const std::optional<Activation> known = activation_of_name(name)) return *known;
  fail("model", "activation must be one of config.json, got {}", name);
}

// activation: "" for none.
at::Tensor linear_layer(const at::Tensor& x, const at::Tensor& weight, const MaybeTensor& bias,
                        std::string_view activation) {
  const Linear layer{Parameter(weight), parameter_of(bias)};
  return activation.empty() ? layer(x) : layer(x, activation_of(activation));
}

// The norm of residual + drop(x, p).
at::Tensor norm_layer(const at::Tensor& x, const MaybeTensor& residual, const MaybeTensor& gain,
                      const MaybeTensor& bias, std::string_view kind, double eps, double p, int64_t seed,
                      int64_t stream) {
  const Norm norm{kind == "rms" ? NormKind::kRms : NormKind::kLayer, eps, parameter_of(gain), parameter_of(bias)};
  if (!residual) return norm(x);
  DropoutKey key = DropoutKey::at(seed, stream);
  return norm(x, *residual, {&key, p > 0}, p);
}

at::Tensor activate_by_name(const at::Tensor& x, std::string_view name) { return activate(activation_of(name), x); }

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.def("linear_layer(Tensor x, Tensor weight, Tensor? bias, str activation=\"\") -> Tensor", linear_layer);
  library.def(
      "norm_layer(Tensor x, Tensor? residual, Tensor? gain, Tensor? bias, str kind, float eps, float p=0.0, int "
      "seed=0, "
      "int stream=0) -> Tensor",
      norm_layer);
  library.def("activate(Tensor x, str activation) -> Tensor", activate_by_name);
}

// This key tells torch.vmap how to decompose a call.
TORCH_LIBRARY_IMPL(roformer, FuncTorchBatchedDecomposition, library) {
  library.impl("linear_layer", linear_layer);
  library.impl("norm_layer", norm_layer);
  library.impl("activate", activate_by_name);
}

}  // namespace

}  // namespace rf::nn
