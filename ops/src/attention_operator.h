// roformer::attention_kernel and its backward: schemas, and calls through the dispatcher.
#pragma once

#include <ATen/core/List.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <vector>

#include "attention_call.h"

namespace rf::ops {

// terms: query_cos, query_sin, key_cos, key_sin, value_cos, value_sin, content_bias, position_bias, key_table,
// query_table, value_table, bias, gate, position_query, position_key, reset_row, reset_col. ranges: lo and hi of the
// five that are by distance. log_sum is for the backward. wanted: of q, k, v and terms; the result holds those.
inline constexpr const char* kAttentionSchema =
    "attention_kernel(Tensor q, Tensor k, Tensor v, Tensor query_positions, Tensor key_positions, Tensor? attend, "
    "Tensor?[] terms, int[] ranges, *, str layout=\"pairs\", float? scale=None, int left=-1, int right=-1, "
    "float dropout=0.0, SymInt seed=0, SymInt stream=0, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None) -> "
    "(Tensor out, Tensor log_sum)";
inline constexpr const char* kAttentionBackwardSchema =
    "attention_kernel_backward(Tensor grad_out, Tensor out, Tensor log_sum, bool[20] wanted, Tensor q, Tensor k, "
    "Tensor v, Tensor query_positions, Tensor key_positions, Tensor? attend, Tensor?[] terms, int[] ranges, *, "
    "str layout=\"pairs\", float? scale=None, int left=-1, int right=-1, float dropout=0.0, SymInt seed=0, "
    "SymInt stream=0, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None) -> Tensor[]";

using Wanted = std::array<bool, kInputs>;
static_assert(kInputs == 20, "of the schema");

using AttentionResult = std::tuple<at::Tensor, at::Tensor>;
using TermList = c10::List<std::optional<at::Tensor>>;

template <class Result, class... Before>
using AttentionSignature = Result(Before..., const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& query_positions, const at::Tensor& key_positions,
                                  const std::optional<at::Tensor>& attend, const TermList& terms,
                                  at::IntArrayRef ranges, std::string_view layout, std::optional<double> scale,
                                  int64_t left, int64_t right, double dropout, c10::SymInt seed, c10::SymInt stream,
                                  const std::optional<at::Tensor>& cu_seqlens_q,
                                  const std::optional<at::Tensor>& cu_seqlens_k);

// The lists of a call by their places; the schema does not say how long they are.
inline Inputs inputs_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const TermList& terms) {
  Inputs inputs = {q, k, v};
  for (size_t i = 0; i < kTerms; ++i) inputs[kQueryCos + i] = terms.get(i).value_or(at::Tensor());
  return inputs;
}
inline std::array<int64_t, kRanges> ranges_of(at::IntArrayRef given) {
  std::array<int64_t, kRanges> ranges{};
  std::copy(given.begin(), given.end(), ranges.begin());
  return ranges;
}
inline void check_lists(const TermList& terms, at::IntArrayRef ranges) {
  TORCH_CHECK_VALUE(terms.size() == kTerms && ranges.size() == kRanges, "[attention] terms and ranges must have ",
                    kTerms, " and ", kRanges, " entries, got ", terms.size(), " and ", ranges.size());
}

// Makes a kernel for the dispatcher from one that takes an AttentionCall, and then what the schema has before it.
template <auto kKernel, class Function = decltype(kKernel)>
struct AttentionKernel;
template <auto kKernel, class Result, class... Before>
struct AttentionKernel<kKernel, Result (*)(const AttentionCall&, Before...)> {
  static Result run(Before... before, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& query_positions, const at::Tensor& key_positions,
                    const std::optional<at::Tensor>& attend, const TermList& terms, at::IntArrayRef ranges,
                    std::string_view layout, std::optional<double> scale, int64_t left, int64_t right, double dropout,
                    c10::SymInt seed, c10::SymInt stream, const std::optional<at::Tensor>& cu_seqlens_q,
                    const std::optional<at::Tensor>& cu_seqlens_k) {
    check_lists(terms, ranges);
    return kKernel({.inputs = inputs_of(q, k, v, terms),
                    .query_positions = query_positions,
                    .key_positions = key_positions,
                    .attend = attend,
                    .ranges = ranges_of(ranges),
                    .layout = std::string(layout),
                    .scale = scale,
                    .window = {left, right},
                    .packed = {cu_seqlens_q.value_or(at::Tensor()), cu_seqlens_k.value_or(at::Tensor())},
                    .dropout = dropout,
                    .seed = std::move(seed),
                    .stream = std::move(stream)},
                   before...);
  }
};

AttentionResult dispatch_attention(const AttentionCall& call);
std::vector<at::Tensor> dispatch_attention_backward(const AttentionCall& call, const at::Tensor& grad_out,
                                                    const at::Tensor& out, const at::Tensor& log_sum, Wanted wanted);

}  // namespace rf::ops
