// A call of roformer::attention_kernel: the tensors in it, their rules, and their conversion to core's arguments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core_call.h"
#include "rf/attention.h"
#include "rf/ops/attention.h"

namespace rf::ops {

// The differentiable inputs, or their gradients, in one order: q, k, v, then the tensors of terms in the order of
// rf/attention_terms.h, two for a rotation.
#define RF_ROTATION(name, ...) #name "_cos", #name "_sin",
#define RF_TERM(name, ...) #name,
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol) #query_name, #key_name,
inline constexpr std::array kInputNames = {"q", "k", "v",
                                           RF_ATTENTION_TERMS(RF_ROTATION, RF_TERM, RF_TERM, RF_PAIR, RF_TERM)};
#undef RF_ROTATION
#undef RF_TERM
#undef RF_PAIR
inline constexpr size_t kInputs = kInputNames.size(), kTerms = kInputs - 3;

struct AttentionGradients {
  at::Tensor q, k, v;
  Terms terms;
};

// Their places in an AttentionCall or in AttentionGradients; absent inputs are undefined.
template <class Call>
auto inputs_of(Call& call) {
  auto& terms = call.terms;
#define RF_ROTATION(name, ...) &terms.name.cos, &terms.name.sin,
#define RF_TABLE(name, ...) &terms.name.rows,
#define RF_NUMBERS(name, ...) &terms.name,
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol) &terms.query_name, &terms.key_name,
  return std::array{&call.q, &call.k, &call.v,
                    RF_ATTENTION_TERMS(RF_ROTATION, RF_TABLE, RF_NUMBERS, RF_PAIR, RF_NUMBERS)};
#undef RF_ROTATION
#undef RF_TABLE
#undef RF_NUMBERS
#undef RF_PAIR
}

// The tables by distance, in the order of the list.
template <class AnyTerms>
auto tables_of(AnyTerms& terms) {
#define RF_TABLE(name, ...) &terms.name,
  return std::array{RF_ATTENTION_TERMS(RF_NO_TERM, RF_TABLE, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM)};
#undef RF_TABLE
}
inline constexpr size_t kRanges = 2 * std::tuple_size_v<decltype(tables_of(std::declval<Terms&>()))>;

// Their lo and hi, in that order.
std::vector<int64_t> ranges_of(const Terms& terms);
void set_ranges(Terms& terms, const std::vector<int64_t>& ranges);

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
// grads: contiguous, undefined where not wanted. grad_out: its last dimension contiguous.
rf_attention_grads core_grads(Borrowed<at::Tensor> grad_out, Borrowed<AttentionGradients> grads);

}  // namespace rf::ops
