// Schemas of the operators, their flat argument lists, and calls through the dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "rf/ops/ops.h"

namespace rf::ops {

inline constexpr const char* kRopeSchema =
    "rope(Tensor x, Tensor positions, *, str layout, float base=10000.0, Tensor? freqs=None, float scale=1.0, "
    "int? rotary_dim=None, bool heads_first=False, str direction=\"forward\") -> Tensor";
// Returns nothing, the form of a mutating operator that torch.compile can functionalize in every supported version.
inline constexpr const char* kRopeInplaceSchema =
    "rope_(Tensor(a!) x, Tensor positions, *, str layout, float base=10000.0, Tensor? freqs=None, float scale=1.0, "
    "int? rotary_dim=None, bool heads_first=False, str direction=\"forward\") -> ()";
inline constexpr const char* kRotateSchema =
    "rotate(Tensor x, Tensor cos, Tensor sin, str layout, *, str direction=\"forward\") -> Tensor";
inline constexpr const char* kRopeTableSchema =
    "rope_table(Tensor positions, Tensor freqs, Tensor? freqs_lo=None, float scale=1.0, ScalarType dtype=float) -> "
    "(Tensor cos, Tensor sin)";
// seed and stream are SymInt, so that a compiled training step is not specialised on the numbers of one step.
inline constexpr const char* kDropoutSchema = "dropout(Tensor x, float p, SymInt seed, SymInt stream) -> Tensor";

template <class Result>
using RopeSignature = Result(const at::Tensor& x, const at::Tensor& positions, std::string_view layout, double base,
                             const std::optional<at::Tensor>& freqs, double scale, std::optional<int64_t> rotary_dim,
                             bool heads_first, std::string_view direction);

using RotateSignature = at::Tensor(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                                   std::string_view layout, std::string_view direction);
using RopeTableSignature = std::tuple<at::Tensor, at::Tensor>(const at::Tensor& positions, const at::Tensor& freqs,
                                                              const std::optional<at::Tensor>& freqs_lo, double scale,
                                                              at::ScalarType dtype);

// Makes a kernel for the dispatcher from one that takes RopeOptions.
template <class Result, Result (*kKernel)(const at::Tensor&, const at::Tensor&, const RopeOptions&)>
Result rope_kernel(const at::Tensor& x, const at::Tensor& positions, std::string_view layout, double base,
                   const std::optional<at::Tensor>& freqs, double scale, std::optional<int64_t> rotary_dim,
                   bool heads_first, std::string_view direction) {
  return kKernel(x, positions, {layout, base, freqs, scale, rotary_dim, heads_first, direction});
}

// The operators through the dispatcher, so that autograd, torch.compile and every backend see the call.
at::Tensor dispatch_rope(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options);
void dispatch_rope_inplace(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options);

at::Tensor dispatch_rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, std::string_view layout,
                           std::string_view direction);
std::tuple<at::Tensor, at::Tensor> dispatch_rope_table(const at::Tensor& positions, const at::Tensor& freqs,
                                                       const std::optional<at::Tensor>& freqs_lo, double scale,
                                                       at::ScalarType dtype);

at::Tensor dispatch_dropout(const at::Tensor& x, double p, const c10::SymInt& seed, const c10::SymInt& stream);

// The rules of rope's arguments.
void check_rope_arguments(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options);

// rope composed of rope_table and rotate, so that gradients reach options.freqs, which must be set.
at::Tensor rope_by_rows(const at::Tensor& x, const at::Tensor& positions, const RopeOptions& options);

}  // namespace rf::ops
