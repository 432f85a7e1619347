// DAPE (Zheng et al. 2024, arXiv 2405.14722 section 3.2; R-REL-17): a distance bias that adapts to the scores. For each
// pair of tokens, a two-layer network reads the scores and biases of all heads and adds a number to each score:
//
//   a = s q_m.k_n, b = B(m - n) of the heads     score(m,n) = a + b + W_2 leaky_relu(W_1 [a; b] + b_1) + b_2
//
// B is another encoding that adds a distance bias: kerple-log, the authors' best, or alibi, fire, ... Weights start
// like torch's linear layers, as in the authors' code. Each layer has its own weights and shares B
// if B does so without DAPE. The network mixes heads, so its hidden values are stored: mlp_width x T x S.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/leaky_relu.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

// Encodings that only add a distance bias.
std::vector<std::string> biases() {
  std::vector<std::string> names;
  for (const EncodingInfo& info : encoding_infos()) {
    if (info.terms == "b" || info.terms == "P") names.push_back(info.name);
  }
  return names;
}

class Dape : public Encoding {
 public:
  Dape(io::StrictObject& options, const EncodingShape& shape) : heads_(shape.heads), head_dim_(shape.head_dim) {
    const std::string name = options.text("bias", "kerple-log");
    const std::vector<std::string> known = biases();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      fail("position_encoding", "{} must be one of {}, got {}", options.path_of("bias"), fmt::join(known, ", "),
           io::printable(name));
    }
    const int64_t width = options.integer("mlp_width", 32, 1, 1 << 20);
    bias_ = register_module("bias", make_encoding({.type = name, .options = "{}"}, shape));
    const auto linear = [&](const std::string& name, at::IntArrayRef sizes, int64_t fan_in) {
      const double most = 1 / std::sqrt(static_cast<double>(fan_in));
      return layer_parameters(*this, shape.layers, name, [&] { return uniform(sizes, -most, most); });
    };
    weights_1_ = linear("mlp2_0_weight", {width, 2 * heads_}, 2 * heads_);
    biases_1_ = linear("mlp2_0_bias", {width}, 2 * heads_);
    weights_2_ = linear("mlp2_2_weight", {heads_, width}, width);
    biases_2_ = linear("mlp2_2_bias", {heads_}, width);
  }

  bool reads_vectors() const override { return true; }
  void check_length(int64_t tokens) const override { bias_->check_length(tokens); }
  int64_t last_new_length() const override { return bias_->last_new_length(); }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    return {.parts = {bias_->shared(positions, dtype)}};
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    const NoAutocast no_autocast;
    const ReadVectors x = read_vectors("dape", projections, head_dim_, heads_);
    Terms terms = bias_->terms(layer, shared.parts.at(0), {});
    const at::Tensor scores_BHTS = x.scores();
    const at::Tensor bias_BHTS = bias_of(terms, shared.positions).expand_as(scores_BHTS);
    const at::ScalarType dtype = scores_BHTS.scalar_type();
    const auto applied = [&](const at::Tensor& in_BCTS, const at::Tensor& weight, const at::Tensor& bias) {
      return at::einsum("bcts,oc->bots", {in_BCTS, weight.to(dtype)}) + bias.to(dtype).view({1, -1, 1, 1});
    };
    const at::Tensor both = at::cat({scores_BHTS, bias_BHTS.to(dtype)}, 1);
    const at::Tensor inner = at::leaky_relu(applied(both, weights_1_.at(layer), biases_1_.at(layer)));
    const at::Tensor added_BHTS = applied(inner, weights_2_.at(layer), biases_2_.at(layer));
    terms.scale = x.scale;
    terms.pair_bias = terms.pair_bias.defined() ? terms.pair_bias + added_BHTS : added_BHTS;
    return terms;
  }

 private:
  // Bias of each pair, [1 or B, 1 or H, T, S].
  static at::Tensor bias_of(const Terms& terms, const Positions& positions) {
    if (terms.pair_bias.defined()) return terms.pair_bias;
    const at::Tensor& rows_HR = terms.bias.rows;
    const auto ids = [&](const TokenPositions& side) { return on_device(side.ids, rows_HR.device()); };
    const at::Tensor distance_BTS = ids(positions.query).unsqueeze(-1) - ids(positions.key).unsqueeze(-2);
    const at::Tensor row_BTS = distance_BTS.clamp(terms.bias.lo, terms.bias.hi) - terms.bias.lo;
    return rows_HR.index_select(1, row_BTS.flatten()).unflatten(1, row_BTS.sizes()).transpose(0, 1);
  }

  int64_t heads_, head_dim_;
  std::shared_ptr<Encoding> bias_;
  std::vector<Parameter> weights_1_, biases_1_, weights_2_, biases_2_;
};

}  // namespace

EncodingEntry dape() {
  return {
      .info = {.name = "dape",
               .summary = "a bias by distance that a network adapts to the scores of all heads",
               .equation = "a + b + W_2 leaky_relu(W_1 [a; b] + b_1) + b_2, a = s q.k and b = B(m - n) of all heads",
               .source = "Zheng et al. 2024, arXiv 2405.14722 section 3.2",
               .terms = "b, P, s",
               .parameters = "L * (mlp_width (3 H + 1) + H), and those of the bias",
               .cost = "T * S * H (D + 3 mlp_width) multiply-adds, and T * S * mlp_width numbers in memory",
               .extrapolates = "yes, by design",
               .keys = {"bias = kerple-log (or alibi, fire, ...)", "mlp_width = 32"}},
      .make = construct<Dape>};
}

}  // namespace rf::nn::posenc
