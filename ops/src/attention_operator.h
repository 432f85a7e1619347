// roformer::attention_kernel and its backward: schemas and arguments.
#pragma once

#include <string>
#include <tuple>

#include "attention_call.h"
#include "dispatcher.h"

namespace rf::ops {

// terms: in the order of kInputNames; ranges: lo and hi of the terms by distance. log_sum is for the backward. wanted:
// flags in the order of kInputNames; the result holds the wanted gradients.
std::string attention_schema();
std::string attention_backward_schema();

void for_each_argument(ArgumentsOf<AttentionCall> auto& call, const auto& visit) {
  for (auto* x : {&call.q, &call.k, &call.v, &call.query_positions, &call.key_positions, &call.mask}) visit(*x);
  visit(tensors_of(call.terms));
  visit(ranges_of(call.terms));
  visit(call.terms.layout), visit(call.terms.scale);
  visit(call.window.left), visit(call.window.right);
  visit(call.dropout), visit(call.seed), visit(call.stream);
  visit(call.cu_seqlens.q), visit(call.cu_seqlens.k), visit(call.window.prefix);
}

struct AttentionOperator {
  using Call = AttentionCall;
  using Results = std::tuple<at::Tensor, at::Tensor>;         // out and log_sum
  using Backward = BackwardArguments<2, kInputNames.size()>;  // with both results
  static constexpr const char *kName = "roformer::attention_kernel",
                              *kBackwardName = "roformer::attention_kernel_backward";
};

}  // namespace rf::ops
