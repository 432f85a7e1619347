// Chunks of queries, each as an autograd function (gated_products.h).
#include "gated_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "by_distance.h"

namespace rf::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkElements = int64_t{1} << 22;  // of [B, H, queries, S, D]

// index: rows of pairs, int64 [1 or B, t, S]. Result: [B,H,t,S].
at::Tensor products_of(const at::Tensor& q_BHtD, const at::Tensor& k_BHSD, const at::Tensor& rows_HRD,
                       const at::Tensor& index_BtS) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);  // a backward runs without
                                                                                        // autocast
  const at::Tensor rows_RX = rows_HRD.to(sum_type(rows_HRD.scalar_type())).transpose(0, 1).flatten(1);
  const at::Tensor gates_BtSHD = at::embedding(rows_RX, index_BtS).unflatten(-1, {rows_HRD.size(0), rows_HRD.size(2)});
  const at::Tensor gates_BHtSD = gates_BtSHD.permute({0, 3, 1, 2, 4}).to(q_BHtD.scalar_type());
  return at::matmul(gates_BHtSD * k_BHSD.unsqueeze(2), q_BHtD.unsqueeze(-1)).squeeze(-1);
}

struct GatedProducts : torch::autograd::Function<GatedProducts> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_BHtD, const at::Tensor& k_BHSD,
                            const at::Tensor& rows_HRD, const at::Tensor& index_BtS) {
    ctx->save_for_backward({q_BHtD, k_BHSD, rows_HRD, index_BtS});
    return products_of(q_BHtD, k_BHSD, rows_HRD, index_BtS);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outs) {
    variable_list saved = ctx->get_saved_variables();
    const bool higher_order = at::GradMode::is_enabled();
    const at::AutoGradMode record(true);
    // Gradients are taken with respect to these views, even if one input was computed from another.
    for (size_t i = 0; i < 3; ++i) saved[i] = saved[i].view_as(saved[i]);
    const at::Tensor products = products_of(saved[0], saved[1], saved[2], saved[3]);
    variable_list wanted, grads(4);
    for (size_t i = 0; i < 3; ++i) {
      if (saved[i].requires_grad()) wanted.push_back(saved[i]);
    }
    const variable_list found = torch::autograd::grad({products}, wanted, grad_outs, /*retain_graph=*/higher_order,
                                                      /*create_graph=*/higher_order);
    for (size_t i = 0, next = 0; i < 3; ++i) {
      if (saved[i].requires_grad()) grads[i] = found[next++];
    }
    return grads;
  }
};

}  // namespace

at::Tensor gated_products(const at::Tensor& q_BHTD, const at::Tensor& k_BHSD, const DistanceTable& gate,
                          AttentionContext::State& state) {
  const int64_t queries = q_BHTD.size(2), one_query = k_BHSD.numel();
  if (queries == 0 || one_query == 0) return at::matmul(q_BHTD, k_BHSD.transpose(2, 3));
  const int64_t chunk = std::max<int64_t>(1, kChunkElements / one_query);
  const at::Tensor& index_BTS = state.rows_by_distance(gate.lo, gate.hi);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < queries; begin += chunk) {
    const int64_t count = std::min(chunk, queries - begin);
    parts.push_back(
        GatedProducts::apply(q_BHTD.narrow(2, begin, count), k_BHSD, gate.rows, index_BTS.narrow(1, begin, count)));
  }
  return at::cat(parts, 2);
}

}  // namespace rf::nn
