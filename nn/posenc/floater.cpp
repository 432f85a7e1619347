// FLOATER (Liu et al. 2020, arXiv 2003.09229 section 3): position vectors follow an ordinary differential equation with
// a trained network,
//
//   dp/dt = h(t, p)     p_l at position n: the solution at t = n time_step     h(t, p) = W_2 [relu(W_1 [p; t] + b_1);
//   t] + b_2
//
// h is the same for all layers, and each layer l has a trained p_l(0). A layer's vector is added to the input of its
// query, key and value projections, W (x_n + p_l(n)), the first form in the paper. The authors' code instead has three
// initial values for each layer, for vectors added to queries, keys and values after the projections. It also adds a
// sinusoid to the input, which here is a second encoding.
//
// The classical fourth-order Runge-Kutta method solves the equation, with `steps` equal steps per position. Gradients
// are propagated through these steps (the paper uses the adjoint equation). h and its Xavier initialisation are as in
// the authors' code; p_l(0) starts as N(0, initializer_range^2), which differs from it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

constexpr int64_t kLastSolved = 65535;  // time and memory grow with the last position

// W [x; t] + b, W [C, C + 1].
struct TimedLinear {
  at::Tensor weight_CC, of_time_C, bias_C;

  TimedLinear(const at::Tensor& weight, const at::Tensor& bias, at::ScalarType type)
      : weight_CC(weight.to(type).narrow(1, 0, weight.size(0))),
        of_time_C(weight.to(type).select(1, weight.size(0))),
        bias_C(bias.to(type)) {}

  at::Tensor operator()(double t, const at::Tensor& x_LC) const {
    return at::linear(x_LC, weight_CC, bias_C + of_time_C * t);
  }
};

struct Velocity {
  TimedLinear first, second;

  at::Tensor operator()(double t, const at::Tensor& p_LC) const { return second(t, at::relu(first(t, p_LC))); }
};

// p at t + dt.
at::Tensor runge_kutta_step(const Velocity& h, double t, double dt, const at::Tensor& p_LC) {
  const at::Tensor k1 = h(t, p_LC);
  const at::Tensor k2 = h(t + dt / 2, p_LC + k1 * (dt / 2));
  const at::Tensor k3 = h(t + dt / 2, p_LC + k2 * (dt / 2));
  const at::Tensor k4 = h(t + dt, p_LC + k3 * dt);
  return p_LC + (k1 + 2 * (k2 + k3) + k4) * (dt / 6);
}

class Floater : public LengthFreeEncoding {
 public:
  Floater(io::StrictObject& options, const EncodingShape& shape)
      : time_step_(options.number("time_step", 0.01, {0, 100, io::NumberRange::Ends::kOpenLow})),
        steps_(options.integer("steps", 1, 1, 1000)),
        start_(layer_parameters(*this, shape.layers, "start", [&] { return drawn({shape.hidden_size}, shape); })) {
    const int64_t width = shape.hidden_size;
    const auto h = child(*this, "h");
    for (const char* name : {"0", "1"}) {
      const auto layer = child(*h, name);
      at::Tensor weight = at::empty({width, width + 1}, at::kFloat);
      if (!EmptyParameters::wanted()) weight.normal_(0, std::sqrt(2.0 / static_cast<double>(2 * width + 1)));
      weights_.emplace_back(layer->register_parameter("weight", weight));
      biases_.emplace_back(layer->register_parameter("bias", at::zeros({width}, at::kFloat)));
    }
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    const at::Tensor& ids_BT = positions.query.ids;
    int64_t last = 0;
    if (ids_BT.numel() > 0) {
      last = ids_BT.max().item<int64_t>();
      check(ids_BT.min().item<int64_t>());
      check(last);
    }
    return {.rows_PLC = solved(last)};
  }

  at::Tensor layer_input(int64_t layer, const Shared& shared) const override {
    return at::embedding(shared.rows_PLC.select(1, layer),
                         on_device(shared.positions.query.ids, shared.rows_PLC.device()));
  }

  void check_length(int64_t tokens) const override { check(tokens - 1); }
  const char* beyond_terms() const override { return "vectors added to the input of every layer"; }

 private:
  static void check(int64_t position) {
    if (position >= 0 && position <= kLastSolved) return;
    fail("floater", "positions must be in 0..{}, up to which the equation is solved, got {}", kLastSolved, position);
  }

  // p of positions 0..last, [P, L, C].
  at::Tensor solved(int64_t last) const {
    const NoAutocast no_autocast;
    const at::ScalarType type = at::promote_types(weights_[0]->scalar_type(), at::kFloat);
    const Velocity h{TimedLinear(weights_[0], biases_[0], type), TimedLinear(weights_[1], biases_[1], type)};
    at::Tensor p_LC = at::stack(std::vector<at::Tensor>(start_.begin(), start_.end())).to(type);
    std::vector<at::Tensor> rows = {p_LC};
    const double dt = time_step_ / static_cast<double>(steps_);
    for (int64_t step = 0; step < last * steps_; ++step) {
      p_LC = runge_kutta_step(h, static_cast<double>(step) * dt, dt, p_LC);
      if ((step + 1) % steps_ == 0) rows.push_back(p_LC);
    }
    return at::stack(rows);
  }

  double time_step_;
  int64_t steps_;
  std::vector<Parameter> start_;             // [C] for each layer
  std::vector<Parameter> weights_, biases_;  // of h
};

}  // namespace

EncodingEntry floater() {
  return {.info = {.name = "floater",
                   .summary = "solutions of a trained differential equation over positions, added to the attention "
                              "input of each layer",
                   .equation = "W (x_n + p_l(n time_step)), dp/dt = h(t, p), p_l(0) trained",
                   .source = "Liu et al. 2020, arXiv 2003.09229 section 3",
                   .parameters = "L * C + 2 C (C + 2)",
                   .cost = "T * C; once 8 * steps * L * C^2 multiply-adds for each position, one after another",
                   .extrapolates = "defined to position 65535; worse beyond the trained ones (docs/report.md)",
                   .keys = {"time_step = 0.01", "steps = 1"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Floater>};
}

}  // namespace rf::nn::posenc
