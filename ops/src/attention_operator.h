// roformer::attention_kernel and its backward: schemas, and calls through the dispatcher.
#pragma once

#include <torch/library.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "attention_call.h"
#include "dispatcher.h"

namespace rf::ops {

// terms: in the order of kInputNames; ranges: lo and hi of the terms by distance. log_sum is for the backward. wanted:
// flags in the order of kInputNames; the result holds the wanted gradients.
std::string attention_schema();
std::string attention_backward_schema();

using Wanted = std::array<bool, kInputs>;
using AttentionResult = std::tuple<at::Tensor, at::Tensor>;  // out and log_sum

// The backward's arguments before the forward's arguments.
struct AttentionBackward {
  at::Tensor grad_out, out, log_sum;
  Wanted wanted{};
};

AttentionCall read_call(StackReader& stack);
AttentionBackward read_backward(StackReader& stack);

// Kernels for the dispatcher.
template <AttentionResult (*kKernel)(const AttentionCall&)>
void attention_entry(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  StackReader reader(op, *stack);
  auto [out, log_sum] = kKernel(read_call(reader));
  reader.finish(std::move(out), std::move(log_sum));
}
template <std::vector<at::Tensor> (*kKernel)(const AttentionCall&, const AttentionBackward&)>
void attention_backward_entry(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  StackReader reader(op, *stack);
  const AttentionBackward given = read_backward(reader);
  reader.finish(kKernel(read_call(reader), given));
}

AttentionResult dispatch_attention(const AttentionCall& call);
std::vector<at::Tensor> dispatch_attention_backward(const AttentionCall& call, const AttentionBackward& given);

}  // namespace rf::ops
