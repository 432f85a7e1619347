// The forget gate of the Forgetting Transformer (Lin et al. 2025, arXiv 2503.02130 section 3; R-REL-14): each head of
// each layer computes a gate for every token from the layer's input x. The gates between query and key lower the score,
//
//   f_l = sigmoid(w_h . x_l + b_h)     score(i,j) = s q_i.k_j + sum_{l = j+1 .. i} ln f_l
//
// Softmax cancels terms that are equal for all keys of a query, so one number per key suffices: with S keys, kappa_j =
// sum_{l = j+1 .. S-1} ln f_l, which is exact for the keys near the end. Causal. Gates follow the order of tokens in
// the row, regardless of their positions; padding between two tokens counts. Sums use float64.
//
// w starts as N(0, initializer_range^2), b as 0, as in the authors' code. Its other gates (constant, without w), its
// norms of queries and keys, and its output gate are not implemented.
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "layer_parameters.h"

namespace rf::nn::posenc {

namespace {

class ForgetGate : public LengthFreeEncoding {
 public:
  ForgetGate(io::StrictObject&, const EncodingShape& shape)
      : heads_(shape.heads),
        width_(shape.hidden_size),
        weights_HC_(layer_parameters(*this, shape.layers, "fgate_proj_weight",
                                     [&] {
                                       return drawn({shape.heads, shape.hidden_size}, shape);
                                     })),
        biases_H_(layer_parameters(*this, shape.layers, "fgate_proj_bias", [&] { return at::zeros({shape.heads}); })) {}

  int64_t numbers_per_token() const override { return heads_; }

  // ln f, [B,T,H].
  at::Tensor token_numbers(int64_t layer, const at::Tensor& hidden_BTC) const override {
    const NoAutocast no_autocast;
    const at::Tensor& weight_HC = weights_HC_.at(layer);
    const at::Tensor x_BTC = read_hidden("fox", hidden_BTC, width_, weight_HC);
    const at::ScalarType type = x_BTC.scalar_type();
    return at::log_sigmoid(at::linear(x_BTC, weight_HC.to(type), biases_H_.at(layer)->to(type)));
  }

  Terms compute_terms(int64_t, const Shared&, const Projections& projections) override {
    const at::Tensor gates_BHS = projections.token_numbers_BSN.transpose(1, 2);
    const at::Tensor up_to_BHS = gates_BHS.cumsum(2, at::kDouble);
    const at::Tensor after_BHS = gates_BHS.sum({2}, /*keepdim=*/true, at::kDouble) - up_to_BHS;
    return {.key_score = after_BHS.to(gates_BHS.scalar_type())};
  }

 private:
  int64_t heads_, width_;
  std::vector<Parameter> weights_HC_, biases_H_;
};

}  // namespace

EncodingEntry fox() {
  return {.info = {.name = "fox",
                   .summary = "forgetting transformer: a trained gate for each token and head lowers the scores of "
                              "earlier tokens",
                   .equation = "s q_i.k_j + sum_{l = j+1 .. i} ln f_l, f_l = sigmoid(w_h.x_l + b_h)",
                   .source = "Lin et al. 2025, arXiv 2503.02130 section 3",
                   .terms = "kappa",
                   .parameters = "L * H * (C + 1)",
                   .cost = "S * H * C multiply-adds",
                   .extrapolates = "yes, by design",
                   .needs = EncodingInfo::Needs::kCausal},
          .make = construct<ForgetGate>};
}

}  // namespace rf::nn::posenc
