// A call of roformer::attention_kernel: its arguments together, their rules, and what core takes for them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "borrowed.h"
#include "rf/attention.h"
#include "rf/ops/terms.h"

namespace rf::ops {

// The differentiable inputs, in this order wherever they are a list. The operator has q, k and v as arguments of their
// own and the others, from kQueryCos on, as `terms`.
enum Input : size_t {
  kQ,
  kK,
  kV,
  kQueryCos,
  kQuerySin,
  kKeyCos,
  kKeySin,
  kValueCos,
  kValueSin,
  kContentBias,
  kPositionBias,
  kKeyTable,
  kQueryTable,
  kValueTable,
  kBias,
  kGate,
  kPositionQuery,
  kPositionKey,
  kResetRow,
  kResetCol,
  kInputs
};
inline constexpr size_t kTerms = kInputs - kQueryCos, kRanges = 10;
using Inputs = std::array<at::Tensor, kInputs>;

struct AttentionCall {
  Inputs inputs;  // undefined where a term is absent
  at::Tensor query_positions, key_positions;
  std::optional<at::Tensor> attend;
  std::array<int64_t, kRanges> ranges{};  // lo and hi of K, Q, V, b and G
  std::string layout;
  std::optional<double> scale;
  TokenWindow window;
  PackedSequences packed;
  double dropout = 0;
  c10::SymInt seed, stream;

  const at::Tensor& q() const { return inputs[kQ]; }
  const at::Tensor& k() const { return inputs[kK]; }
  const at::Tensor& v() const { return inputs[kV]; }
};

// Throws c10::ValueError, "[attention] rule, got value", for shapes, dtypes and devices that do not fit each other;
// what core sees in its arguments (heads of tables, for one) is left to core. Reads symbolic sizes.
void check_call(const AttentionCall& call);

// The same call with contiguous tensors where core needs them, and the mask expanded; copies only where necessary.
AttentionCall made_contiguous(const AttentionCall& call);

// core's arguments for a call that made_contiguous returned. out and log_sum are those of the forward,
// contiguous; log_sum has no elements for float64.
rf_attention_args core_args(Borrowed<AttentionCall> ready, Borrowed<at::Tensor> out, Borrowed<at::Tensor> log_sum);
// grads: contiguous, undefined where not wanted. grad_out: its last dimension contiguous.
rf_attention_grads core_grads(Borrowed<at::Tensor> grad_out, Borrowed<Inputs> grads);

}  // namespace rf::ops
