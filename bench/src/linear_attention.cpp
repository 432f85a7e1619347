// Linear attention in chunks, features elu + 1, heads of 64, RoPE in the numerator, and the einsum form in torch,
// which takes causal sums in chunks of 128 tokens. Counted: 4 D^2 operations per token and head forward, 12 D^2 with
// backward, which is what the running sums take.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <memory>

#include "formula.h"
#include "rf/linear_attention.h"

namespace rf::bench {

namespace {

constexpr int64_t kChunk = 128;

struct LinearAttentionCase {
  bool causal;
  int64_t tokens, heads;
  Pass pass;
};

// A call and what it reads and writes.
struct LinearAttentionCall {
  rf_linear_attention_args args = sized<rf_linear_attention_args>();
  rf_linear_attention_grads grads = sized<rf_linear_attention_grads>();
  at::Tensor q, k, v, dy, cos, sin, out, denominators, dq, dk, dv;
};

void set_shape(LinearAttentionCall& call, const LinearAttentionCase& c) {
  rf_linear_attention_args& args = call.args;
  args.dtype = RF_F32;
  args.layout = RF_ROPE_HALVES;
  args.direction = c.causal ? RF_LINEAR_CAUSAL : RF_LINEAR_BIDIRECTIONAL;
  args.denominator = RF_DENOMINATOR_PLAIN;
  args.feature_map = RF_FEATURES_ELU_PLUS_ONE;
  args.batch = 1;
  args.queries = args.keys = c.tokens;
  args.heads = args.key_heads = c.heads;
  args.features = args.value_dim = kHeadDim;
  args.q_stride_t = args.k_stride_t = args.v_stride_t = args.out_stride_t = call.q.stride(1);
  args.q_stride_h = args.k_stride_h = args.v_stride_h = args.out_stride_h = call.q.stride(2);
  call.grads.out_stride_t = call.dy.stride(1);
  call.grads.out_stride_h = call.dy.stride(2);
}

std::shared_ptr<LinearAttentionCall> make_linear_attention_call(const LinearAttentionCase& c) {
  auto call = std::make_shared<LinearAttentionCall>();
  for (at::Tensor* x : {&call->q, &call->k, &call->v, &call->dy}) {
    *x = normal({1, c.tokens, c.heads, kHeadDim}, at::kFloat);
  }
  for (at::Tensor* x : {&call->out, &call->dq, &call->dk, &call->dv}) *x = at::empty_like(call->q);
  call->denominators = at::empty({1, c.heads, c.tokens}, at::kFloat);
  const RotationRows rows = rotation_rows(c.tokens, kHeadDim);
  call->cos = rows.cos.to(at::kFloat);
  call->sin = rows.sin.to(at::kFloat);
  set_shape(*call, c);
  rf_linear_attention_args& args = call->args;
  args.q = call->q.const_data_ptr();
  args.k = call->k.const_data_ptr();
  args.v = call->v.const_data_ptr();
  args.out = call->out.data_ptr();
  args.denominators = call->denominators.data_ptr<float>();
  args.query = args.key = {call->cos.const_data_ptr(), call->sin.const_data_ptr(), 1, kHeadDim / 2};
  call->grads.out = call->dy.const_data_ptr();
  call->grads.q = call->dq.data_ptr();
  call->grads.k = call->dk.data_ptr();
  call->grads.v = call->dv.data_ptr();
  return call;
}

// sum_{n <= m} (f_m . g_n) v_n
at::Tensor causal_sums(const at::Tensor& f, const at::Tensor& g, const at::Tensor& v) {
  at::Tensor total = at::zeros({f.size(0), f.size(2), f.size(3), v.size(3)}, f.options());
  const Tensors fs = f.split(kChunk, 1), gs = g.split(kChunk, 1), vs = v.split(kChunk, 1);
  Tensors chunks;
  for (size_t i = 0; i < fs.size(); ++i) {
    const at::Tensor pairs = at::einsum("bthf,bshf->bhts", {fs[i], gs[i]}).tril();
    chunks.push_back(at::einsum("bhts,bshd->bthd", {pairs, vs[i]}) + at::einsum("bthf,bhfd->bthd", {fs[i], total}));
    total = total + at::einsum("bshf,bshd->bhfd", {gs[i], vs[i]});
  }
  return at::cat(chunks, 1);
}

// inputs: q, k, v, cos, sin
at::Tensor einsum_form(const Tensors& in, bool causal) {
  const at::Tensor f = at::elu(in[0]) + 1, g = at::elu(in[1]) + 1;
  const at::Tensor cos = in[3].unsqueeze(1), sin = in[4].unsqueeze(1);
  const at::Tensor rotated_f = rotated(f, cos, sin, RF_ROPE_HALVES), rotated_g = rotated(g, cos, sin, RF_ROPE_HALVES);
  if (causal) {
    return causal_sums(rotated_f, rotated_g, in[2]) / at::einsum("bthf,bthf->bth", {f, g.cumsum(1)}).unsqueeze(-1);
  }
  const at::Tensor sums = at::einsum("bshf,bshd->bhfd", {rotated_g, in[2]});
  return at::einsum("bthf,bhfd->bthd", {rotated_f, sums}) / at::einsum("bthf,bhf->bth", {f, g.sum(1)}).unsqueeze(-1);
}

std::vector<Side> linear_attention_sides(const LinearAttentionCase& c) {
  const std::shared_ptr<LinearAttentionCall> call = make_linear_attention_call(c);
  const bool backward = c.pass == Pass::kForwardBackward;
  const auto ours = [call, backward] {
    must(rf_linear_attention_forward(&call->args));
    if (!backward) return Tensors{call->out};
    must(rf_linear_attention_backward(&call->args, &call->grads));
    return Tensors{call->out, call->dq, call->dk, call->dv};
  };
  Formula formula = {{call->q, call->k, call->v, call->cos, call->sin},
                     [causal = c.causal](const Tensors& in) { return einsum_form(in, causal); }};
  if (backward) {
    formula.output_gradient = call->dy;
    formula.leaves = 3;
  }
  return sides(ours, formula);
}

}  // namespace

void add_linear_attention(Cases& cases, Sizes sizes) {
  struct Shape {
    int64_t tokens, heads;
  };
  const std::vector<Shape> shapes =
      sizes == Sizes::kTiny ? std::vector<Shape>{{7, 2}} : std::vector<Shape>{{8192, 1}, {8192, 12}, {65536, 1}};
  for (const bool causal : {false, true}) {
    for (const Shape& shape : shapes) {
      for (const Pass pass : kPasses) {
        const LinearAttentionCase c = {causal, shape.tokens, shape.heads, pass};
        const double products = pass == Pass::kForward ? 4 : 12;
        cases.push_back({fmt::format("linear-attention/{}/{}x{}/float32/{}", causal ? "causal" : "bidirectional",
                                     c.tokens, c.heads, name_of(pass)),
                         Unit::kOperations, products * static_cast<double>(c.tokens * c.heads * kHeadDim * kHeadDim),
                         [c] { return linear_attention_sides(c); }});
      }
    }
  }
}

}  // namespace rf::bench
