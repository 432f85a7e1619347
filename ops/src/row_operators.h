// The operators of rf/ops/rows.h: schemas, flat argument lists, and calls through the dispatcher.
#pragma once

#include <array>
#include <string>
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

// Makes a kernel for the dispatcher from one that takes a NormCall, followed by the schema's earlier arguments.
template <auto kKernel, class Function = decltype(kKernel)>
struct NormKernel;
template <auto kKernel, class Result, class... Before>
struct NormKernel<kKernel, Result (*)(const NormCall&, Before...)> {
  static Result run(Before... before, const at::Tensor& x, const OptionalTensor& bias, const OptionalTensor& residual,
                    const OptionalTensor& gamma, const OptionalTensor& beta, std::string_view kind, double eps,
                    double dropout, c10::SymInt seed, c10::SymInt stream) {
    return kKernel(
        {{bias, residual, gamma, beta, std::string(kind), eps, dropout, std::move(seed), std::move(stream)}, x},
        before...);
  }
};

at::Tensor dispatch_norm(const NormCall& call);
std::vector<at::Tensor> dispatch_norm_backward(const NormCall& call, const at::Tensor& grad,
                                               std::array<bool, 5> wanted);
std::vector<at::Tensor> dispatch_gelu_backward(const at::Tensor& grad, std::array<bool, 2> wanted, const at::Tensor& x,
                                               const OptionalTensor& bias, std::string_view form);
std::vector<at::Tensor> dispatch_linear_backward(const at::Tensor& grad, std::array<bool, 3> wanted,
                                                 const at::Tensor& x, const at::Tensor& weight);

}  // namespace rf::ops
