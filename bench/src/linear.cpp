// The linear layers of the base model on a batch of 8 x 128 tokens: query, key and value together, the output of
// attention, both of the feed-forward, and the first of these with its GELU (forward alone, as the layer has it).
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "formula.h"
#include "rf/linear.h"

namespace rf::bench {

namespace {

struct LinearCase {
  rf_linear_activation activation;
  int64_t rows, in, out;
  Type type;
  Pass pass;
};

// A call and what it reads and writes.
struct LinearCall {
  rf_linear_args args = sized<rf_linear_args>();
  rf_linear_grads grads = sized<rf_linear_grads>();
  at::Tensor x, weight, bias, dy, y, dx, dweight, dbias;
};

std::shared_ptr<LinearCall> make_linear_call(const LinearCase& c) {
  auto call = std::make_shared<LinearCall>();
  call->x = normal({c.rows, c.in}, c.type.torch);
  call->weight = normal({c.out, c.in}, c.type.torch).div(std::sqrt(static_cast<double>(c.in)));
  call->bias = normal({c.out}, c.type.torch).to(at::kFloat);
  call->dy = normal({c.rows, c.out}, c.type.torch);
  call->y = at::empty_like(call->dy);
  call->dx = at::empty_like(call->x);
  call->dweight = at::empty_like(call->weight);
  call->dbias = at::empty_like(call->bias);
  rf_linear_args& args = call->args;
  args.dtype = c.type.core;
  args.activation = c.activation;
  args.rows = c.rows;
  args.in = c.in;
  args.out = c.out;
  args.x = call->x.const_data_ptr();
  args.weight = call->weight.const_data_ptr();
  args.bias = call->bias.const_data_ptr();
  args.y = call->y.data_ptr();
  args.x_stride = args.weight_stride = call->grads.x_stride = call->grads.weight_stride = c.in;
  args.y_stride = call->grads.y_stride = c.out;
  call->grads.y = call->dy.const_data_ptr();
  call->grads.x = call->dx.data_ptr();
  call->grads.weight = call->dweight.data_ptr();
  call->grads.bias = call->dbias.data_ptr();
  return call;
}

std::vector<Side> linear_sides(const LinearCase& c) {
  const std::shared_ptr<LinearCall> call = make_linear_call(c);
  const auto ours = [call, pass = c.pass] {
    must(rf_linear_forward(&call->args));
    if (pass == Pass::kForward) return Tensors{call->y};
    must(rf_linear_backward(&call->args, &call->grads));
    return Tensors{call->y, call->dx, call->dweight, call->dbias};
  };
  Formula formula = {{call->x, call->weight, call->bias.to(c.type.torch)},
                     [activation = c.activation](const Tensors& in) {
                       const at::Tensor y = at::linear(in[0], in[1], in[2]);
                       return activation == RF_LINEAR_GELU_ERF ? at::gelu(y) : y;
                     }};
  if (c.pass == Pass::kForwardBackward) {
    formula.output_gradient = call->dy;
    formula.leaves = 3;
  }
  return sides(ours, formula);
}

}  // namespace

void add_linear(Cases& cases, Sizes sizes) {
  struct Shape {
    int64_t in, out;
    rf_linear_activation activation;
  };
  const std::vector<Shape> base = {{768, 2304, RF_LINEAR_NONE},
                                   {768, 768, RF_LINEAR_NONE},
                                   {768, 3072, RF_LINEAR_NONE},
                                   {768, 3072, RF_LINEAR_GELU_ERF},
                                   {3072, 768, RF_LINEAR_NONE}};
  const std::vector<Shape> tiny = {{24, 16, RF_LINEAR_NONE}, {24, 16, RF_LINEAR_GELU_ERF}};
  const int64_t rows = sizes == Sizes::kTiny ? 5 : 8 * 128;
  for (const Shape& shape : sizes == Sizes::kTiny ? tiny : base) {
    const bool gelu = shape.activation == RF_LINEAR_GELU_ERF;
    for (const Type& type : kTypes) {
      for (const Pass pass : kPasses) {
        if (gelu && pass == Pass::kForwardBackward) continue;
        const LinearCase c = {shape.activation, rows, shape.in, shape.out, type, pass};
        const double products = pass == Pass::kForward ? 2 : 6;
        cases.push_back({fmt::format("linear/{}/{}x{}x{}/{}/{}", gelu ? "gelu" : "plain", c.rows, c.in, c.out,
                                     type.name, name_of(pass)),
                         Unit::kOperations, products * static_cast<double>(c.rows * c.in * c.out),
                         [c] { return linear_sides(c); }});
      }
    }
  }
}

}  // namespace rf::bench
