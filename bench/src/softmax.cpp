// Softmax over the rows of 12 heads' scores. Counted: one array per read or write: 2 forward, and 3 more with backward.
#include <ATen/ops/softmax.h>
#include <fmt/format.h>

#include "rf/rows.h"
#include "row_call.h"

namespace rf::bench {

namespace {

struct SoftmaxCase {
  int64_t rows, columns;
  Type type;
  Pass pass;
};

std::vector<Side> softmax_sides(const SoftmaxCase& c) {
  const auto call = std::make_shared<RowCall<rf_softmax_args, rf_softmax_grads>>(c.rows, c.columns, c.type);
  const auto ours = [call, pass = c.pass] {
    must(rf_softmax_forward(&call->args));
    if (pass == Pass::kForward) return Tensors{call->y};
    must(rf_softmax_backward(&call->args, &call->grads));
    return Tensors{call->y, call->dx};
  };
  Formula formula = {{call->x}, [](const Tensors& in) { return at::softmax(in[0], -1); }};
  if (c.pass == Pass::kForwardBackward) {
    formula.output_gradient = call->dy;
    formula.leaves = 1;
  }
  return sides(ours, formula);
}

}  // namespace

void add_softmax(Cases& cases, Sizes sizes) {
  const int64_t rows = sizes == Sizes::kTiny ? 5 : 12 * 512, columns = sizes == Sizes::kTiny ? 24 : 512;
  for (const Type& type : kTypes) {
    for (const Pass pass : kPasses) {
      const SoftmaxCase c = {rows, columns, type, pass};
      const int64_t arrays = pass == Pass::kForward ? 2 : 5;
      cases.push_back({fmt::format("softmax/{}x{}/{}/{}", rows, columns, type.name, name_of(pass)), Unit::kBytes,
                       static_cast<double>(arrays * rows * columns * type.bytes), [c] { return softmax_sides(c); }});
    }
  }
}

}  // namespace rf::bench
