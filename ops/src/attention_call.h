// A call of roformer::attention_kernel: the tensors in it, their rules, and their conversion to core's arguments.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "core_call.h"
#include "rf/attention.h"
#include "rf/ops/attention.h"

namespace rf::ops {

// The differentiable inputs in one order: q, k, v, then the tensors of terms.
inline constexpr size_t kInputs = 3 + kTerms;
inline constexpr std::array kInputNames = [] {
  std::array<const char*, kInputs> names = {"q", "k", "v"};
  std::copy(kTermNames.begin(), kTermNames.end(), names.begin() + 3);
  return names;
}();

// lo and hi of the tables by distance, in the order of the list.
template <class AnyTerms>
auto ranges_of(AnyTerms& terms) {
#define RF_TABLE(name, ...) &terms.name.lo, &terms.name.hi,
  return std::array{RF_ATTENTION_TERMS(RF_NO_TERM, RF_TABLE, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM)};
#undef RF_TABLE
}

// The differentiable inputs of a call, or their gradients in another one.
template <class Call>
auto inputs_of(Call& call) {
  std::array<decltype(&call.q), kInputs> inputs = {&call.q, &call.k, &call.v};
  const auto of_terms = tensors_of(call.terms);
  std::copy(of_terms.begin(), of_terms.end(), inputs.end() - kTerms);
  return inputs;
}

// Whether x is one of the terms whose numbers are added to scores, which are read through their strides.
bool is_scores(const Terms& terms, const at::Tensor& x);

// Throws c10::ValueError if q, k or v is undefined or an input is not floating-point. Call it before converting inputs.
void check_floating(const AttentionCall& call);
// Throws c10::ValueError for errors that core cannot see: dtypes, devices, and shapes that do not match. Reads symbolic
// sizes. core checks extents, positions and values.
void check_call(const AttentionCall& call);

// The same call with contiguous tensors where core needs them, and the mask expanded; copies only where necessary.
AttentionCall made_contiguous(const AttentionCall& call);

// core's arguments for a call that made_contiguous returned. out and log_sum are the results of the forward,
// contiguous; log_sum is empty for float64.
rf_attention_args core_args(Borrowed<AttentionCall> ready, Borrowed<at::Tensor> out, Borrowed<at::Tensor> log_sum);
// grads: contiguous inputs, undefined where not wanted. grad_out: its last dimension contiguous.
rf_attention_grads core_grads(Borrowed<at::Tensor> grad_out, Borrowed<AttentionCall> grads);

}  // namespace rf::ops
