// GELU of the feed-forward's width, both forms, and the form with erf after a bias. Counted: one array per read or
// write: 2 forward, and 3 more with backward.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <fmt/format.h>

#include "rf/rows.h"
#include "row_call.h"

namespace rf::bench {

namespace {

constexpr struct Variant {
  const char* name;
  rf_gelu_form form;
  bool bias;
} kVariants[] = {{"erf", RF_GELU_ERF, false}, {"tanh", RF_GELU_TANH, false}, {"bias-erf", RF_GELU_ERF, true}};

struct GeluCase {
  Variant variant;
  int64_t rows, columns;
  Type type;
  Pass pass;
};

struct GeluCall : RowCall<rf_gelu_args, rf_gelu_grads> {
  at::Tensor bias, dbias;
  using RowCall::RowCall;
};

std::shared_ptr<GeluCall> make_gelu_call(const GeluCase& c) {
  auto call = std::make_shared<GeluCall>(c.rows, c.columns, c.type);
  call->args.form = c.variant.form;
  if (c.variant.bias) {
    call->bias = normal({c.columns}, c.type.torch).to(at::kFloat);
    call->dbias = at::empty({c.columns}, at::kFloat);
    call->args.bias = call->bias.const_data_ptr();
    call->grads.bias = call->dbias.data_ptr();
  }
  return call;
}

std::vector<Side> gelu_sides(const GeluCase& c) {
  const std::shared_ptr<GeluCall> call = make_gelu_call(c);
  const auto ours = [call, pass = c.pass] {
    must(rf_gelu_forward(&call->args));
    if (pass == Pass::kForward) return Tensors{call->y};
    must(rf_gelu_backward(&call->args, &call->grads));
    return call->bias.defined() ? Tensors{call->y, call->dx, call->dbias} : Tensors{call->y, call->dx};
  };
  Formula formula = {{call->x}, [form = c.variant.form](const Tensors& in) {
                       return at::gelu(in.size() == 1 ? in[0] : in[0] + in[1], form == RF_GELU_ERF ? "none" : "tanh");
                     }};
  if (c.variant.bias) formula.inputs.push_back(call->bias.to(c.type.torch));
  if (c.pass == Pass::kForwardBackward) {
    formula.output_gradient = call->dy;
    formula.leaves = formula.inputs.size();
  }
  return sides(ours, formula);
}

}  // namespace

void add_gelu(Cases& cases, Sizes sizes) {
  const int64_t rows = sizes == Sizes::kTiny ? 5 : 4096, columns = sizes == Sizes::kTiny ? 24 : 3072;
  for (const Variant& variant : kVariants) {
    for (const Type& type : kTypes) {
      for (const Pass pass : kPasses) {
        const GeluCase c = {variant, rows, columns, type, pass};
        const int64_t arrays = pass == Pass::kForward ? 2 : 5;
        cases.push_back({fmt::format("gelu/{}/{}x{}/{}/{}", variant.name, rows, columns, type.name, name_of(pass)),
                         Unit::kBytes, static_cast<double>(arrays * rows * columns * type.bytes),
                         [c] { return gelu_sides(c); }});
      }
    }
  }
}

}  // namespace rf::bench
