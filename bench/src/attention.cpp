// Attention in tiles, 12 heads of 64, without a bias and with T5's, and torch's scaled_dot_product_attention, to
// which the bias is a matrix. Counted: 4 D operations for each pair of query and key forward, 14 D with backward.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "formula.h"
#include "rf/attention.h"

namespace rf::bench {

namespace {

const double kScale = 1 / std::sqrt(static_cast<double>(kHeadDim));

struct AttentionCase {
  bool bias;
  int64_t batch, tokens;
  Type type;
  Pass pass;
};

// A call and what it reads and writes.
struct AttentionCall {
  rf_attention_args args = sized<rf_attention_args>();
  rf_attention_grads grads = sized<rf_attention_grads>();
  at::Tensor q, k, v, dy, rows, positions, out, log_sum, dq, dk, dv;
};

void set_shape(AttentionCall& call, const AttentionCase& c) {
  rf_attention_args& args = call.args;
  args.dtype = c.type.core;
  args.batch = c.batch;
  args.queries = args.keys = c.tokens;
  args.heads = args.key_heads = kHeads;
  args.head_dim = args.value_dim = kHeadDim;
  args.q_stride_b = args.k_stride_b = args.v_stride_b = args.out_stride_b = call.q.stride(0);
  args.q_stride_t = args.k_stride_t = args.v_stride_t = args.out_stride_t = call.q.stride(1);
  args.q_stride_h = args.k_stride_h = args.v_stride_h = args.out_stride_h = call.q.stride(2);
  call.grads.out_stride_b = call.dy.stride(0);
  call.grads.out_stride_t = call.dy.stride(1);
  call.grads.out_stride_h = call.dy.stride(2);
  args.scale = kScale;
}

std::shared_ptr<AttentionCall> make_attention_call(const AttentionCase& c) {
  auto call = std::make_shared<AttentionCall>();
  for (at::Tensor* x : {&call->q, &call->k, &call->v, &call->dy}) {
    *x = normal({c.batch, c.tokens, kHeads, kHeadDim}, c.type.torch);
  }
  for (at::Tensor* x : {&call->out, &call->dq, &call->dk, &call->dv}) *x = at::empty_like(call->q);
  call->log_sum = at::empty({c.batch, kHeads, c.tokens}, at::kFloat);
  call->positions = at::arange(c.tokens, at::kLong);
  set_shape(*call, c);
  rf_attention_args& args = call->args;
  args.q = call->q.const_data_ptr();
  args.k = call->k.const_data_ptr();
  args.v = call->v.const_data_ptr();
  args.out = call->out.data_ptr();
  args.log_sum = call->log_sum.data_ptr<float>();
  args.query_positions = args.key_positions = call->positions.const_data_ptr<int64_t>();
  if (c.bias) {  // rounded, for the matrix that torch reads is of the case's type
    call->rows = normal({kHeads, 2 * c.tokens - 1}, c.type.torch).to(at::kFloat);
    args.bias = {call->rows.const_data_ptr(), 1 - c.tokens, c.tokens - 1, kHeads, 1};
  }
  call->grads.out = call->dy.const_data_ptr();
  call->grads.q = call->dq.data_ptr();
  call->grads.k = call->dk.data_ptr();
  call->grads.v = call->dv.data_ptr();
  return call;
}

at::Tensor explicit_form(const Tensors& in) {
  const at::Tensor q = in[0].transpose(1, 2), k = in[1].transpose(1, 2), v = in[2].transpose(1, 2);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * kScale;
  if (in.size() == 4) scores = scores + in[3];
  return at::matmul(at::softmax(scores, -1), v).transpose(1, 2);
}

at::Tensor scaled_dot_product(const Tensors& in) {
  const std::optional<at::Tensor> bias = in.size() == 4 ? std::optional(in[3]) : std::nullopt;
  return at::scaled_dot_product_attention(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), bias)
      .transpose(1, 2);
}

std::vector<Side> attention_sides(const AttentionCase& c) {
  const std::shared_ptr<AttentionCall> call = make_attention_call(c);
  const bool backward = c.pass == Pass::kForwardBackward;
  const auto ours = [call, backward] {
    must(rf_attention_forward(&call->args));
    if (!backward) return Tensors{call->out};
    must(rf_attention_backward(&call->args, &call->grads));
    return Tensors{call->out, call->dq, call->dk, call->dv};
  };
  Formula formula = {{call->q, call->k, call->v}, scaled_dot_product};
  if (c.bias) {
    const at::Tensor distances = call->positions.unsqueeze(1) - call->positions + (c.tokens - 1);
    const at::Tensor matrix = call->rows.index_select(1, distances.flatten()).view({1, kHeads, c.tokens, c.tokens});
    formula.inputs.push_back(matrix.to(c.type.torch));
  }
  if (backward) {
    formula.output_gradient = call->dy;
    formula.leaves = 3;
  }
  Formula plain = formula;
  plain.output = explicit_form;
  return sides(ours, formula, plain, plain);
}

}  // namespace

void add_attention(Cases& cases, Sizes sizes) {
  struct Shape {
    int64_t batch, tokens;
  };
  const std::vector<Shape> shapes =
      sizes == Sizes::kTiny ? std::vector<Shape>{{2, 7}} : std::vector<Shape>{{8, 128}, {2, 512}, {1, 2048}};
  for (const bool bias : {false, true}) {
    for (const Shape& shape : shapes) {
      for (const Type& type : kTypes) {
        for (const Pass pass : kPasses) {
          const AttentionCase c = {bias, shape.batch, shape.tokens, type, pass};
          const double products = pass == Pass::kForward ? 4 : 14;
          cases.push_back({fmt::format("attention/{}/{}x{}/{}/{}", bias ? "t5" : "plain", c.batch, c.tokens, type.name,
                                       name_of(pass)),
                           Unit::kOperations,
                           products * static_cast<double>(c.batch * kHeads * c.tokens * c.tokens * kHeadDim),
                           [c] { return attention_sides(c); }});
        }
      }
    }
  }
}

}  // namespace rf::bench
