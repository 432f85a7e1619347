// Norms over rows: layer norm, RMS norm, and what ends half a post-norm block, layer norm of residual + dropout of
// x + bias. Counted: one array per read or write: 2 (block 3) forward, and 3 (block 5) more with backward.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rms_norm.h>
#include <fmt/format.h>

#include <memory>

#include "formula.h"
#include "rf/dropout.h"
#include "rf/rows.h"

namespace rf::bench {

namespace {

constexpr double kEps = 1e-5, kDropout = 0.1;
constexpr uint64_t kSeed = 2, kStream = 3;

enum class Variant { kLayer, kRms, kBlock };
constexpr struct {
  Variant variant;
  const char* name;
} kVariants[] = {{Variant::kLayer, "layer"}, {Variant::kRms, "rms"}, {Variant::kBlock, "block"}};

struct NormCase {
  Variant variant;
  int64_t rows, columns;
  Type type;
  Pass pass;
};

// A call and what it reads and writes; for torch, parameters are rounded to the type of x.
struct NormCall {
  rf_norm_args args = sized<rf_norm_args>();
  rf_norm_grads grads = sized<rf_norm_grads>();
  at::Tensor x, residual, bias, gamma, beta, dy, y, dx, dresidual, dbias, dgamma, dbeta;
};

at::Tensor parameter(int64_t columns, const Type& type) {
  return normal({columns}, type.torch).to(at::kFloat);
}

void add_block(NormCall& call, const NormCase& c) {
  call.residual = normal({c.rows, c.columns}, c.type.torch);
  call.bias = parameter(c.columns, c.type);
  call.dresidual = at::empty_like(call.x);
  call.dbias = at::empty({c.columns}, at::kFloat);
  call.args.bias = call.bias.const_data_ptr();
  call.args.residual = call.residual.const_data_ptr();
  call.args.residual_stride = call.grads.residual_stride = c.columns;
  call.args.dropout = kDropout;
  call.args.seed = kSeed;
  call.args.stream = kStream;
  call.grads.residual = call.dresidual.data_ptr();
  call.grads.bias = call.dbias.data_ptr();
}

std::shared_ptr<NormCall> make_norm_call(const NormCase& c) {
  auto call = std::make_shared<NormCall>();
  call->x = normal({c.rows, c.columns}, c.type.torch);
  call->dy = normal({c.rows, c.columns}, c.type.torch);
  call->y = at::empty_like(call->x);
  call->dx = at::empty_like(call->x);
  rf_norm_args& args = call->args;
  args.dtype = c.type.core;
  args.kind = c.variant == Variant::kRms ? RF_NORM_RMS : RF_NORM_LAYER;
  args.rows = c.rows;
  args.columns = c.columns;
  args.x_stride = args.y_stride = call->grads.x_stride = call->grads.y_stride = c.columns;
  args.x = call->x.const_data_ptr();
  args.y = call->y.data_ptr();
  args.eps = kEps;
  call->grads.y = call->dy.const_data_ptr();
  call->grads.x = call->dx.data_ptr();
  call->gamma = parameter(c.columns, c.type);
  call->dgamma = at::empty({c.columns}, at::kFloat);
  args.gamma = call->gamma.const_data_ptr();
  call->grads.gamma = call->dgamma.data_ptr();
  if (c.variant != Variant::kRms) {
    call->beta = parameter(c.columns, c.type);
    call->dbeta = at::empty({c.columns}, at::kFloat);
    args.beta = call->beta.const_data_ptr();
    call->grads.beta = call->dbeta.data_ptr();
  }
  if (c.variant == Variant::kBlock) add_block(*call, c);
  return call;
}

// inputs: x, gamma, [beta, [residual, bias]]
Tensors inputs_of(const NormCall& call, const Type& type) {
  Tensors inputs = {call.x, call.gamma.to(type.torch)};
  if (call.beta.defined()) inputs.push_back(call.beta.to(type.torch));
  if (call.bias.defined()) {
    inputs.push_back(call.residual);
    inputs.push_back(call.bias.to(type.torch));
  }
  return inputs;
}

Tensors results_of(const NormCall& call, Pass pass) {
  if (pass == Pass::kForward) return {call.y};
  Tensors results = {call.y, call.dx, call.dgamma};
  if (call.beta.defined()) results.push_back(call.dbeta);
  if (call.bias.defined()) results.insert(results.end(), {call.dresidual, call.dbias});
  return results;
}

using Drop = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor torch_norm(const Tensors& in, const Drop& drop) {
  const int64_t columns = in[0].size(1);
  if (in.size() == 2) return at::rms_norm(in[0], columns, in[1], kEps);
  const at::Tensor s = in.size() == 3 ? in[0] : in[3] + drop(in[0] + in[4]);
  return at::layer_norm(s, columns, in[1], in[2], kEps);
}

at::Tensor torch_drop(const at::Tensor& x) {
  return at::dropout(x, kDropout, true);
}

Formula with_drop(Formula formula, const Drop& drop) {
  formula.output = [drop](const Tensors& in) { return torch_norm(in, drop); };
  return formula;
}

// The factors that our dropout and torch's next one multiply by: 0, or 1 over the share that is kept.
at::Tensor our_factors(const NormCase& c) {
  const at::Tensor ones = at::ones({c.rows, c.columns}, at::kDouble), factors = at::empty_like(ones);
  must(rf_dropout(RF_F64, ones.const_data_ptr(), factors.data_ptr(), ones.numel(), kDropout, kSeed, kStream));
  return factors;
}

at::Tensor torch_factors(const at::Tensor& x) {
  at::manual_seed(kSeed);
  const at::Tensor factors = torch_drop(at::ones_like(x)).to(at::kDouble);
  at::manual_seed(kSeed);
  return factors;
}

std::vector<Side> norm_sides(const NormCase& c) {
  const std::shared_ptr<NormCall> call = make_norm_call(c);
  const auto ours = [call, pass = c.pass] {
    must(rf_norm_forward(&call->args));
    if (pass == Pass::kForwardBackward) must(rf_norm_backward(&call->args, &call->grads));
    return results_of(*call, pass);
  };
  Formula formula = with_drop({inputs_of(*call, c.type), {}}, torch_drop);
  if (c.pass == Pass::kForwardBackward) {
    formula.output_gradient = call->dy;
    formula.leaves = formula.inputs.size();
  }
  if (c.variant != Variant::kBlock) return sides(ours, formula);
  // Each side has a mask of its own.
  const auto with_factors = [formula](const at::Tensor& factors) {
    return with_drop(formula, [factors](const at::Tensor& x) { return x * factors.to(x.scalar_type()); });
  };
  const auto ours_in_torch = [with_factors, c] { return with_factors(our_factors(c)); };
  const auto torch_again = [with_factors, x = call->x] { return with_factors(torch_factors(x)); };
  std::vector<Side> all = sides(ours, formula);
  all[0].truth = [ours_in_torch] { return evaluate(in_float64(ours_in_torch())); };
  all[0].plain = [ours_in_torch] { return evaluate(ours_in_torch()); };
  all[1].truth = [torch_again] { return evaluate(in_float64(torch_again())); };
  all[1].plain = [torch_again] { return evaluate(torch_again()); };
  return all;
}

}  // namespace

void add_norm(Cases& cases, Sizes sizes) {
  const int64_t rows = sizes == Sizes::kTiny ? 5 : 4096, columns = sizes == Sizes::kTiny ? 24 : 768;
  for (const auto& [variant, name] : kVariants) {
    for (const Type& type : kTypes) {
      for (const Pass pass : kPasses) {
        const NormCase c = {variant, rows, columns, type, pass};
        const bool block = variant == Variant::kBlock;
        const int64_t arrays = pass == Pass::kForward ? (block ? 3 : 2) : (block ? 8 : 5);
        cases.push_back({fmt::format("norm/{}/{}x{}/{}/{}", name, rows, columns, type.name, name_of(pass)),
                         Unit::kBytes, static_cast<double>(arrays * rows * columns * type.bytes),
                         [c] { return norm_sides(c); }});
      }
    }
  }
}

}  // namespace rf::bench
