// roformer::linear_attention_kernel and its backward: schemas, a call's arguments together, and calls through the
// dispatcher.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace rf::ops {

// denominators [B,H,T] are for the backward. state_after: empty without a state. wanted: of q, k and v; the result
// holds those.
inline constexpr const char* kLinearAttentionSchema =
    "linear_attention_kernel(Tensor q, Tensor k, Tensor v, *, str feature_map, str direction, "
    "str denominator=\"plain\", Tensor? query_cos=None, Tensor? query_sin=None, Tensor? key_cos=None, "
    "Tensor? key_sin=None, str layout=\"pairs\", Tensor? key_mask=None, float eps=0.0, Tensor? state=None) -> "
    "(Tensor out, Tensor denominators, Tensor state_after)";
inline constexpr const char* kLinearAttentionBackwardSchema =
    "linear_attention_kernel_backward(Tensor grad_out, Tensor out, Tensor denominators, bool[3] wanted, Tensor q, "
    "Tensor k, Tensor v, *, str feature_map, str direction, str denominator=\"plain\", Tensor? query_cos=None, "
    "Tensor? query_sin=None, Tensor? key_cos=None, Tensor? key_sin=None, str layout=\"pairs\", Tensor? key_mask=None, "
    "float eps=0.0) -> Tensor[]";

using MaybeTensor = std::optional<at::Tensor>;

struct LinearAttentionCall {
  at::Tensor q, k, v;
  std::string feature_map, direction, denominator;
  MaybeTensor query_cos, query_sin, key_cos, key_sin;
  std::string layout;
  MaybeTensor key_mask;
  double eps = 0;
  MaybeTensor state;  // of the forward
};

using LinearAttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // out, denominators, state_after
using LinearAttentionWanted = std::array<bool, 3>;

using LinearAttentionSignature = LinearAttentionResult(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                       std::string_view feature_map, std::string_view direction,
                                                       std::string_view denominator, const MaybeTensor& query_cos,
                                                       const MaybeTensor& query_sin, const MaybeTensor& key_cos,
                                                       const MaybeTensor& key_sin, std::string_view layout,
                                                       const MaybeTensor& key_mask, double eps,
                                                       const MaybeTensor& state);
using LinearAttentionBackwardSignature = std::vector<at::Tensor>(
    const at::Tensor& grad_out, const at::Tensor& out, const at::Tensor& denominators, LinearAttentionWanted wanted,
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::string_view feature_map,
    std::string_view direction, std::string_view denominator, const MaybeTensor& query_cos,
    const MaybeTensor& query_sin, const MaybeTensor& key_cos, const MaybeTensor& key_sin, std::string_view layout,
    const MaybeTensor& key_mask, double eps);

// Make a kernel for the dispatcher from one that takes a LinearAttentionCall.
template <LinearAttentionResult (*kKernel)(const LinearAttentionCall&)>
LinearAttentionResult linear_attention_entry(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             std::string_view feature_map, std::string_view direction,
                                             std::string_view denominator, const MaybeTensor& query_cos,
                                             const MaybeTensor& query_sin, const MaybeTensor& key_cos,
                                             const MaybeTensor& key_sin, std::string_view layout,
                                             const MaybeTensor& key_mask, double eps, const MaybeTensor& state) {
  return kKernel({q, k, v, std::string(feature_map), std::string(direction), std::string(denominator), query_cos,
                  query_sin, key_cos, key_sin, std::string(layout), key_mask, eps, state});
}
template <std::vector<at::Tensor> (*kKernel)(const LinearAttentionCall&, const at::Tensor&, const at::Tensor&,
                                             const at::Tensor&, LinearAttentionWanted)>
std::vector<at::Tensor> linear_attention_backward_entry(const at::Tensor& grad_out, const at::Tensor& out,
                                                        const at::Tensor& denominators, LinearAttentionWanted wanted,
                                                        const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                        std::string_view feature_map, std::string_view direction,
                                                        std::string_view denominator, const MaybeTensor& query_cos,
                                                        const MaybeTensor& query_sin, const MaybeTensor& key_cos,
                                                        const MaybeTensor& key_sin, std::string_view layout,
                                                        const MaybeTensor& key_mask, double eps) {
  return kKernel({q, k, v, std::string(feature_map), std::string(direction), std::string(denominator), query_cos,
                  query_sin, key_cos, key_sin, std::string(layout), key_mask, eps, std::nullopt},
                 grad_out, out, denominators, wanted);
}

LinearAttentionResult dispatch_linear_attention(const LinearAttentionCall& call);
std::vector<at::Tensor> dispatch_linear_attention_backward(const LinearAttentionCall& call, const at::Tensor& grad_out,
                                                           const at::Tensor& out, const at::Tensor& denominators,
                                                           LinearAttentionWanted wanted);

}  // namespace rf::ops
