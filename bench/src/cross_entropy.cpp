// Cross-entropy over the vocabulary at the masked positions of a pretraining batch: 15 % of 32 x 128 tokens and 8000
// entries, 15 % of 8 x 128 and 50000. Counted: the logits once forward, and three times with backward.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include <memory>

#include "formula.h"
#include "rf/rows.h"

namespace rf::bench {

namespace {

constexpr int64_t kIgnored = -100;

struct CrossEntropyCase {
  int64_t rows, columns;
  Type type;
  Pass pass;
};

// A call and what it reads and writes.
struct CrossEntropyCall {
  rf_cross_entropy_args args = sized<rf_cross_entropy_args>();
  rf_cross_entropy_grads grads = sized<rf_cross_entropy_grads>();
  at::Tensor logits, targets, dloss, loss, log_sum, dlogits;
};

std::shared_ptr<CrossEntropyCall> make_cross_entropy_call(const CrossEntropyCase& c) {
  auto call = std::make_shared<CrossEntropyCall>();
  call->logits = normal({c.rows, c.columns}, c.type.torch);
  call->targets = at::randint(c.columns, {c.rows}, at::kLong);
  call->dloss = normal({c.rows}, c.type.torch).to(at::kFloat);
  call->loss = at::empty({c.rows}, at::kFloat);
  call->log_sum = at::empty({c.rows}, at::kDouble);
  call->dlogits = at::empty_like(call->logits);
  rf_cross_entropy_args& args = call->args;
  args.dtype = c.type.core;
  args.rows = c.rows;
  args.columns = c.columns;
  args.logits = call->logits.const_data_ptr();
  args.logits_stride = call->grads.logits_stride = c.columns;
  args.targets = call->targets.const_data_ptr<int64_t>();
  args.ignore_index = kIgnored;
  args.loss = call->loss.data_ptr();
  args.log_sum = call->log_sum.data_ptr<double>();
  call->grads.loss = call->dloss.const_data_ptr();
  call->grads.loss_stride = 1;
  call->grads.logits = call->dlogits.data_ptr();
  return call;
}

std::vector<Side> cross_entropy_sides(const CrossEntropyCase& c) {
  const std::shared_ptr<CrossEntropyCall> call = make_cross_entropy_call(c);
  const auto ours = [call, pass = c.pass] {
    must(rf_cross_entropy_forward(&call->args));
    if (pass == Pass::kForward) return Tensors{call->loss};
    must(rf_cross_entropy_backward(&call->args, &call->grads));
    return Tensors{call->loss, call->dlogits};
  };
  constexpr int64_t kNoReduction = 0;  // at::Reduction::None
  Formula formula = {{call->logits}, [targets = call->targets](const Tensors& in) {
                       return at::cross_entropy_loss(in[0], targets, {}, kNoReduction, kIgnored);
                     }};
  if (c.pass == Pass::kForwardBackward) {
    formula.output_gradient = call->dloss.to(c.type.torch);
    formula.leaves = 1;
  }
  return sides(ours, formula);
}

}  // namespace

void add_cross_entropy(Cases& cases, Sizes sizes) {
  struct Shape {
    int64_t rows, columns;
  };
  const std::vector<Shape> shapes =
      sizes == Sizes::kTiny ? std::vector<Shape>{{5, 24}} : std::vector<Shape>{{614, 8000}, {154, 50000}};
  for (const Shape& shape : shapes) {
    for (const Type& type : kTypes) {
      for (const Pass pass : kPasses) {
        const CrossEntropyCase c = {shape.rows, shape.columns, type, pass};
        const int64_t arrays = pass == Pass::kForward ? 1 : 3;
        cases.push_back({fmt::format("cross-entropy/{}x{}/{}/{}", c.rows, c.columns, type.name, name_of(pass)),
                         Unit::kBytes, static_cast<double>(arrays * c.rows * c.columns * type.bytes),
                         [c] { return cross_entropy_sides(c); }});
      }
    }
  }
}

}  // namespace rf::bench
