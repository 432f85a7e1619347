// The operators of rf/ops/rows.h: schemas, flat argument lists, and calls through the dispatcher.
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "dispatcher.h"
#include "rf/ops/rows.h"

namespace rf::ops {

inline constexpr const char* kNormSchema =
    "norm(Tensor x, Tensor? bias, Tensor? residual, Tensor? gamma, Tensor? beta, *, str kind=\"layer\", "
    "float eps=1e-12, float dropout=0.0, SymInt seed=0, SymInt stream=0) -> Tensor";
// wanted: flags of x, bias, residual, gamma and beta; the result holds the wanted gradients.
inline constexpr const char* kNormBackwardSchema =
    "norm_backward(Tensor grad, bool[5] wanted, Tensor x, Tensor? bias, Tensor? residual, Tensor? gamma, Tensor? beta, "
    "*, str kind=\"layer\", float eps=1e-12, float dropout=0.0, SymInt seed=0, SymInt stream=0) -> Tensor[]";
inline constexpr const char* kGeluSchema = "gelu(Tensor x, Tensor? bias=None, *, str form=\"erf\") -> Tensor";
inline constexpr const char* kGeluBackwardSchema =
    "gelu_backward(Tensor grad, bool[2] wanted, Tensor x, Tensor? bias, *, str form=\"erf\") -> Tensor[]";
inline constexpr const char* kLinearSchema =
    "linear(Tensor x, Tensor weight, Tensor? bias=None, *, str activation=\"none\") -> Tensor";
// Reads the numbers of x only for the gradient of weight, and the numbers of weight only for the gradient of x.
inline constexpr const char* kLinearBackwardSchema =
    "linear_backward(Tensor grad, bool[3] wanted, Tensor x, Tensor weight) -> Tensor[]";

using OptionalTensor = std::optional<at::Tensor>;

// The arguments of roformer::norm.
struct NormCall : NormOptions {
  at::Tensor x;
};
void for_each_argument(ArgumentsOf<NormCall> auto& call, const auto& visit) {
  for (auto* x : {&call.x, &call.bias, &call.residual, &call.gamma, &call.beta}) visit(*x);
  visit(call.kind), visit(call.eps), visit(call.dropout), visit(call.seed), visit(call.stream);
}

struct NormOperator {
  using Call = NormCall;
  using Results = std::tuple<at::Tensor>;
  using Backward = BackwardArguments<0, 5>;
  static constexpr const char *kName = "roformer::norm", *kBackwardName = "roformer::norm_backward";
};

// The arguments of roformer::gelu.
struct GeluCall {
  at::Tensor x, bias;
  std::string form;
};
void for_each_argument(ArgumentsOf<GeluCall> auto& call, const auto& visit) {
  visit(call.x), visit(call.bias), visit(call.form);
}

struct GeluOperator {
  using Call = GeluCall;
  using Results = std::tuple<at::Tensor>;
  using Backward = BackwardArguments<0, 2>;
  static constexpr const char *kName = "roformer::gelu", *kBackwardName = "roformer::gelu_backward";
};

std::vector<at::Tensor> dispatch_linear_backward(const at::Tensor& grad, std::array<bool, 3> wanted,
                                                 const at::Tensor& x, const at::Tensor& weight);

}  // namespace rf::ops
