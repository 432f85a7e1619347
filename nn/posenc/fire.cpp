// FIRE (Li et al. 2024, arXiv 2310.04418 Eq. 4-5; R-REL-13): a trained function of the distance divided by the query's
// position, added to the scores outside the scale. The quotient never leaves the range seen in training:
//
//   b(i,j) = f_h(psi(|i - j|) / (psi(max(|L|, i)) + 1e-6))     psi(x) = ln(|c| x + 1)
//   f_h(x) = sum_w v_hw relu(u_w x + t_w)
//
// c and L = l init_L are trained. Initial values are the authors': c = 0.1, l = 1, u and t uniform in [-1, 1], v
// uniform up to 1/sqrt(mlp_width). Each layer has its own parameters; with `shared`, all layers use one set (the
// paper's FIRE-S). The bias of the last layer of f is omitted, because softmax cancels it. The paper is causal; without
// causal attention distances count in both directions.
//
// f is piecewise linear, so on the CPU b and its gradients are computed from its pieces (interpolated_bias.h).
// Higher-order gradients, and other devices, use the formula in torch operations, whose hidden layer takes mlp_width
// numbers per pair while it is computed.
#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "interpolated_bias.h"
#include "known_values.h"
#include "layer_parameters.h"
#include "rf/nn/devices.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kEps = 1e-6;  // as in the authors' code

// Parameters of f and psi, float32 or float64: c [1], L [1], u and t [W,1], v [H,W].
struct Net {
  at::Tensor c, threshold, u_W1, t_W1, v_HW;
};

// b for queries and keys at integer positions, [B,H,T,S], with gradients of any order.
at::Tensor bias_of(const at::Tensor& query_Bt, const at::Tensor& key_BS, const Net& net) {
  const NoAutocast no_autocast;  // as in a backward
  const at::ScalarType type = net.v_HW.scalar_type();
  const at::Tensor distance_BtS = (query_Bt.unsqueeze(2) - key_BS.unsqueeze(1)).abs().to(type), c = net.c.abs();
  const at::Tensor farthest_Bt = at::maximum(query_Bt.to(type), net.threshold.abs());
  const at::Tensor x_BtS = (c * distance_BtS).log1p() / ((c * farthest_Bt).log1p() + kEps).unsqueeze(2);
  const at::Tensor hidden_BWN = at::addcmul(net.t_W1, net.u_W1, x_BtS.flatten(1).unsqueeze(1)).relu();
  return at::matmul(net.v_HW, hidden_BWN).unflatten(2, {query_Bt.size(1), key_BS.size(1)});
}

variable_list gradients_of(const variable_list& net, const at::Tensor& query_BT, const at::Tensor& key_BS,
                           const variable_list& grad_outs) {
  const bool higher_order = at::GradMode::is_enabled();
  const at::AutoGradMode record(true);
  variable_list leaves, wanted, grads(net.size());
  // Gradients are taken with respect to these views, even if one input was computed from another.
  for (const at::Tensor& input : net) leaves.push_back(input.view_as(input));
  const at::Tensor bias = bias_of(query_BT, key_BS, {leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]});
  for (const at::Tensor& leaf : leaves) {
    if (leaf.requires_grad()) wanted.push_back(leaf);
  }
  const variable_list found =
      torch::autograd::grad({bias}, wanted, grad_outs, /*retain_graph=*/higher_order, /*create_graph=*/higher_order);
  for (size_t i = 0, next = 0; i < leaves.size(); ++i) {
    if (leaves[i].requires_grad()) grads[i] = found[next++];
  }
  return grads;
}

double number_of(const at::Tensor& tensor) { return tensor.item<double>(); }

double sign(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

at::Tensor tensor_of(const std::vector<double>& numbers, const at::Tensor& like) {
  const at::Tensor result = at::empty(like.sizes(), like.options().dtype(at::kDouble));
  std::copy(numbers.begin(), numbers.end(), result.mutable_data_ptr<double>());
  return result.to(like.scalar_type());
}

// Trained parameters and positions in the form that interpolated_bias.h takes.
class Pieces {
 public:
  Pieces(const at::Tensor& query_BT, const at::Tensor& key_BS, const Net& net)
      : query_BT_(query_BT.contiguous()),
        key_BS_(key_BS.contiguous()),
        interpolation_{std::abs(number_of(net.c)), std::abs(number_of(net.threshold)), kEps},
        f_(units(net)) {}

  const UnitSegments& f() const { return f_; }

  template <class Real>
  DistancePsi<Real> table() const {
    const PositionPairs pairs = {cpu_data<int64_t>(query_BT_, "positions"),
                                 cpu_data<int64_t>(key_BS_, "positions"),
                                 query_BT_.size(0),
                                 key_BS_.size(0),
                                 query_BT_.size(1),
                                 key_BS_.size(1)};
    return DistancePsi<Real>(pairs, interpolation_);
  }

  at::Tensor bias(at::ScalarType type) const {
    const int64_t batch = std::max(query_BT_.size(0), key_BS_.size(0));
    const at::Tensor bias_BHTS = at::empty({batch, f_.heads(), query_BT_.size(1), key_BS_.size(1)}, type);
    if (type == at::kDouble) {
      compute_interpolated_bias(table<double>(), f_, bias_BHTS.mutable_data_ptr<double>());
    } else {
      compute_interpolated_bias(table<float>(), f_, bias_BHTS.mutable_data_ptr<float>());
    }
    return bias_BHTS;
  }

  InterpolatedGradients gradients(const at::Tensor& grad_BHTS) const {
    const at::Tensor grad = grad_BHTS.contiguous();
    if (grad.scalar_type() == at::kDouble) {
      return interpolated_bias_gradients(table<double>(), f_, cpu_data<double>(grad, "gradients"));
    }
    return interpolated_bias_gradients(table<float>(), f_, cpu_data<float>(grad, "gradients"));
  }

 private:
  static UnitSegments units(const Net& net) {
    const at::Tensor u = net.u_W1.to(at::kDouble).contiguous(), t = net.t_W1.to(at::kDouble).contiguous(),
                     v = net.v_HW.to(at::kDouble).contiguous();
    return UnitSegments(cpu_data<double>(u, "weights"), cpu_data<double>(t, "weights"), cpu_data<double>(v, "weights"),
                        v.size(0), v.size(1));
  }

  at::Tensor query_BT_, key_BS_;
  Interpolation interpolation_;
  UnitSegments f_;
};

struct FireBias : torch::autograd::Function<FireBias> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& query_BT, const at::Tensor& key_BS,
                            const at::Tensor& c, const at::Tensor& threshold, const at::Tensor& u_W1,
                            const at::Tensor& t_W1, const at::Tensor& v_HW) {
    ctx->save_for_backward({c, threshold, u_W1, t_W1, v_HW, query_BT, key_BS});
    const Net net = {c, threshold, u_W1, t_W1, v_HW};
    return v_HW.is_cpu() ? Pieces(query_BT, key_BS, net).bias(v_HW.scalar_type()) : bias_of(query_BT, key_BS, net);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad_outs) {
    const variable_list saved = ctx->get_saved_variables();
    const variable_list net(saved.begin(), saved.begin() + 5);
    variable_list grads(2);  // of the positions
    if (at::GradMode::is_enabled() || !net[4].is_cpu()) {
      for (const at::Tensor& grad : gradients_of(net, saved[5], saved[6], grad_outs)) grads.push_back(grad);
      return grads;
    }
    const InterpolatedGradients of =
        Pieces(saved[5], saved[6], {net[0], net[1], net[2], net[3], net[4]}).gradients(grad_outs[0]);
    grads.push_back(tensor_of({of.c * sign(number_of(net[0]))}, net[0]));
    grads.push_back(tensor_of({of.threshold * sign(number_of(net[1]))}, net[1]));
    grads.push_back(tensor_of(of.f.u, net[2]));
    grads.push_back(tensor_of(of.f.t, net[3]));
    grads.push_back(tensor_of(of.f.v, net[4]));
    return grads;
  }
};

class Fire : public LengthFreeEncoding {
 public:
  Fire(io::StrictObject& options, const EncodingShape& shape) {
    constexpr io::NumberRange kPositive = {0, 1e9, io::NumberRange::Ends::kOpenLow};
    const int64_t width = options.integer("mlp_width", 32, 1, 4096), heads = shape.heads;
    const double init_c = options.number("init_c", 0.1, kPositive);
    init_threshold_ = options.number("init_L", 512, kPositive);
    shared_ = options.boolean("shared", false);
    const auto number = [](double value) { return [value] { return at::full({1}, value, at::kFloat); }; };
    c_ = parameters("c", shape.layers, number(init_c));
    factor_ = parameters("L_multiplier", shape.layers, number(1));
    u_ = parameters("mlp_0_weight", shape.layers, [=] { return uniform({width, 1}, -1, 1); });
    t_ = parameters("mlp_0_bias", shape.layers, [=] { return uniform({width}, -1, 1); });
    v_ = parameters("mlp_2_weight", shape.layers, [=] {
      const double most = 1 / std::sqrt(static_cast<double>(width));
      return uniform({heads, width}, -most, most);
    });
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    distance_range(positions, 1);  // so that positions can be subtracted
    return shared_ ? Shared{.terms = {.pair_bias = bias(0, positions)}} : Shared{};
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections&) override {
    return shared_ ? shared.terms : Terms{.pair_bias = bias(layer, shared.positions)};
  }

 private:
  std::vector<Parameter> parameters(const std::string& name, int64_t layers, const std::function<at::Tensor()>& draw) {
    if (!shared_) return layer_parameters(*this, layers, name, draw);
    return {Parameter(register_parameter(name, draw()))};
  }

  at::Tensor bias(int64_t layer, const Positions& positions) const {
    const at::ScalarType type = at::promote_types(v_.at(layer)->scalar_type(), at::kFloat);
    const auto given = [&](const std::vector<Parameter>& of_layers) { return of_layers.at(layer)->to(type); };
    const at::Tensor c = given(c_), threshold = given(factor_) * init_threshold_, u_W1 = given(u_),
                     t_W1 = given(t_).unsqueeze(1), v_HW = given(v_);
    const at::Tensor query_BT = on_device(positions.query.ids, c.device()),
                     key_BS = on_device(positions.key.ids, c.device());
    if (is_inside_transform()) return bias_of(query_BT, key_BS, {c, threshold, u_W1, t_W1, v_HW});
    return FireBias::apply(query_BT, key_BS, c, threshold, u_W1, t_W1, v_HW);
  }

  double init_threshold_;
  bool shared_;                                    // by all layers
  std::vector<Parameter> c_, factor_, u_, t_, v_;  // one for each layer, or one for all
};

}  // namespace

EncodingEntry fire() {
  return {.info = {.name = "fire",
                   .summary = "a trained function of the distance over the query's position, added to the scores",
                   .equation = "s q_i.k_j + f_h(psi(i - j) / psi(max(L, i))), psi(x) = ln(c x + 1)",
                   .source = "Li et al. 2024, arXiv 2310.04418 Eq. 4-5",
                   .terms = "P",
                   .parameters = "L * ((H + 2) * mlp_width + 2); without the factor L with shared",
                   .cost = "T * S * H multiply-adds, three times that in the backward",
                   .extrapolates = "yes, by design",
                   .keys = {"mlp_width = 32", "init_c = 0.1", "init_L = 512", "shared = false"},
                   .invariance = EncodingInfo::Invariance::kNone},
          .make = construct<Fire>};
}

}  // namespace rf::nn::posenc
