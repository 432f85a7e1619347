// Shifts and gathers (by_distance.h). A shift: with x [.., A, A+B-1], element (a, b) of the result is
// x[a, b - a + A-1]. In memory, the elements wanted from successive rows begin at intervals of A+B-2, so the result is
// a view of x with rows of that length:
//
//     x, A = 3, B = 2     . . 0 1     (dots: not wanted)     from the third element on, in rows of 3:   0 1 .
//                         . 2 3 .                                                                       2 3 .
//                         4 5 . .                                                                       4 5 .
#include "by_distance.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace rf::nn {

namespace {

// For sums of many numbers of dtype, as in the backward of a gather: 16-bit sums stop growing.
at::ScalarType sum_type(at::ScalarType dtype) { return at::isReducedFloatingType(dtype) ? at::kFloat : dtype; }

at::Tensor shifted(const at::Tensor& x, int64_t to) {
  const int64_t rows = x.size(-2), width = x.size(-1);
  if (rows == 1) return x;
  return x.flatten(-2).narrow(-1, rows - 1, rows * (width - 1)).unflatten(-1, {rows, width - 1}).narrow(-1, 0, to);
}

// The transpose of `shifted`; other elements are zeros.
at::Tensor shifted_back(const at::Tensor& x) {
  const int64_t rows = x.size(-2), from = x.size(-1), width = rows + from - 1;
  if (rows == 1) return x;
  const at::Tensor flat = at::constant_pad_nd(x, {0, width - 1 - from}).flatten(-2);
  return at::constant_pad_nd(flat, {rows - 1, 1}).unflatten(-1, {rows, width});
}

// The table rows for distances first .. first+count-1: a slice of the table, with its first row repeated `before` more
// times and its last row `after` more times.
struct Run {
  at::Tensor rows;  // [H or 1, rows, ..]
  int64_t before = 0, after = 0;
};
Run run_of_rows(const DistanceTable& table, int64_t first, int64_t count) {
  const int64_t last = first + count - 1;
  const int64_t lowest = std::clamp(first, table.lo, table.hi), highest = std::clamp(last, table.lo, table.hi);
  const int64_t before = std::max<int64_t>(0, std::min(last, lowest) - first), rows = highest - lowest + 1;
  return {table.rows.narrow(1, lowest - table.lo, rows), before, count - before - rows};
}

// Columns by distance, with the outer columns repeated.
at::Tensor widened(const at::Tensor& x, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  const auto repeated = [&](int64_t column, int64_t times) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = times;
    return x.narrow(-1, column, 1).expand(shape);
  };
  return at::cat({repeated(0, before), x, repeated(x.size(-1) - 1, after)}, -1);
}

// The transpose of `widened`.
at::Tensor narrowed(const at::Tensor& x, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  const int64_t rows = x.size(-1) - before - after;
  const at::Tensor inner = x.narrow(-1, before, rows);
  const at::Tensor low = x.narrow(-1, 0, before).sum(-1, true), high = x.narrow(-1, before + rows, after).sum(-1, true);
  if (rows == 1) return inner + low + high;
  return at::cat({inner.narrow(-1, 0, 1) + low, inner.narrow(-1, 1, rows - 2), inner.narrow(-1, rows - 1, 1) + high},
                 -1);
}

// Distances decrease along the keys of a query, so the run is reversed.
Run run_for_queries(const DistanceTable& table, AttentionContext::State& state) {
  const int64_t keys = state.keys(), queries = state.queries();
  Run run = run_of_rows(table, *state.first_of_steps() - (keys - 1), queries + keys - 1);
  run.rows = run.rows.flip(1);
  std::swap(run.before, run.after);
  return run;
}

// [1 or B, T, S] as [B, H, T, S].
at::Tensor for_heads(const at::Tensor& index_BTS, const at::Tensor& like_BHxx) {
  return index_BTS.unsqueeze(1).expand({like_BHxx.size(0), like_BHxx.size(1), -1, -1});
}

at::Tensor gathered(const at::Tensor& x_BHxR, const at::Tensor& index_Bxy) {
  return x_BHxR.to(sum_type(x_BHxR.scalar_type())).gather(-1, for_heads(index_Bxy, x_BHxR)).to(x_BHxR.scalar_type());
}

}  // namespace

at::Tensor query_dot_rows(const at::Tensor& x_BHTD, const DistanceTable& table, AttentionContext::State& state) {
  if (state.first_of_steps()) {
    const Run run = run_for_queries(table, state);
    return shifted(widened(at::matmul(x_BHTD, run.rows.transpose(1, 2)), run.before, run.after), state.keys());
  }
  return gathered(at::matmul(x_BHTD, table.rows.transpose(1, 2)), state.rows_by_distance(table.lo, table.hi));
}

at::Tensor key_dot_rows(const at::Tensor& x_BHSD, const DistanceTable& table, AttentionContext::State& state) {
  if (state.first_of_steps()) {  // distances rise along the queries of a key
    const int64_t keys = state.keys(), queries = state.queries();
    const Run run = run_of_rows(table, *state.first_of_steps() - (keys - 1), queries + keys - 1);
    const at::Tensor products = at::matmul(x_BHSD, run.rows.transpose(1, 2));
    return shifted(widened(products, run.before, run.after), queries).transpose(2, 3);
  }
  const at::Tensor index_BST = state.rows_by_distance(table.lo, table.hi).transpose(1, 2);
  return gathered(at::matmul(x_BHSD, table.rows.transpose(1, 2)), index_BST).transpose(2, 3);
}

at::Tensor sum_of_rows(const at::Tensor& x_BHTS, const DistanceTable& table, AttentionContext::State& state) {
  if (state.first_of_steps()) {
    const Run run = run_for_queries(table, state);
    return at::matmul(narrowed(shifted_back(x_BHTS), run.before, run.after), run.rows);
  }
  const at::ScalarType type = sum_type(x_BHTS.scalar_type());
  const at::Tensor none_BHTR =
      at::zeros({x_BHTS.size(0), x_BHTS.size(1), x_BHTS.size(2), table.rows.size(1)}, x_BHTS.options().dtype(type));
  const at::Tensor index_BHTS = for_heads(state.rows_by_distance(table.lo, table.hi), x_BHTS);
  const at::Tensor sums_BHTR = none_BHTR.scatter_add(-1, index_BHTS, x_BHTS.to(type));
  return at::matmul(sums_BHTR.to(x_BHTS.scalar_type()), table.rows);
}

at::Tensor numbers_of_rows(const DistanceTable& table, AttentionContext::State& state) {
  const DistanceTable wide = {table.rows.to(sum_type(table.rows.scalar_type())), table.lo, table.hi};
  if (state.first_of_steps()) {  // windows of the run, the last query's first
    const Run run = run_for_queries(wide, state);
    return widened(run.rows, run.before, run.after).unfold(-1, state.keys(), 1).flip(1).unsqueeze(0);
  }
  return at::embedding(wide.rows.t(), state.rows_by_distance(table.lo, table.hi)).permute({0, 3, 1, 2});
}

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
