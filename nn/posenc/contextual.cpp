// Scores that depend on the tokens between query and key, or on all heads.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::nn::posenc {

namespace {

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

// Contextual position encoding (Golovneva et al. 2024, arXiv 2405.18719 section 4; R-REL-16): a query counts the tokens
// for which it opens a gate, and this count is the position of a key,
//
//   g_ij = sigmoid(s q_i.k_j)     p_ij = min(sum_{l = j .. i} g_il, npos_max - 1)
//   score(i,j) = s q_i.k_j + q_i.e[p_ij]
//
// with e between two rows of the table interpolated. Gates use scaled scores. All heads of a layer share one table [D,
// npos_max], which starts at 0, as in the paper's listing. Causal. Tokens are counted in the order of the row,
// regardless of their positions; padding between two tokens counts.
//
// A count needs all gates of a query, so one number per pair of tokens is stored: T x S for each head.
class Cope : public LengthFreeEncoding {
 public:
  Cope(io::StrictObject& options, const EncodingShape& shape) : head_dim_(shape.head_dim) {
    const int64_t places = options.integer("npos_max", 64, 1, int64_t{1} << 20);
    tables_DP_ = layer_parameters(*this, shape.layers, "pos_emb", [&] { return at::zeros({head_dim_, places}); });
  }

  bool reads_vectors() const override { return true; }

  Terms compute_terms(int64_t layer, const Shared&, const Projections& projections) override {
    const NoAutocast no_autocast;
    const ReadVectors x = read_vectors("cope", projections, head_dim_);
    const int64_t queries = x.q_BTHD.size(1), keys = x.k_BSHD.size(1);
    const at::Tensor gates_BHTS = x.scores().sigmoid().tril(keys - queries);
    const at::Tensor& table_DP = tables_DP_.at(layer);
    const at::Tensor from_key_BHTS = gates_BHTS.flip({-1}).cumsum(-1).flip({-1});
    const at::Tensor place_BHTS = from_key_BHTS.clamp_max(static_cast<double>(table_DP.size(1) - 1));
    const at::Tensor known_BHTS = place_BHTS.detach().nan_to_num(0);  // NaN still propagates through the factor below
    const at::Tensor below_BHTS = known_BHTS.floor();
    const at::Tensor all_BHTP = at::einsum("bthd,dp->bhtp", {x.q_BTHD, table_DP.to(x.q_BTHD.scalar_type())});
    const at::Tensor low = all_BHTP.gather(-1, below_BHTS.to(at::kLong));
    const at::Tensor high = all_BHTP.gather(-1, known_BHTS.ceil().to(at::kLong));
    return {.pair_bias = low + (place_BHTS - below_BHTS) * (high - low), .scale = x.scale};
  }

 private:
  int64_t head_dim_;
  std::vector<Parameter> tables_DP_;
};

// DAPE (Zheng et al. 2024, arXiv 2405.14722 section 3.2; R-REL-17): a distance bias that adapts to the scores. For each
// pair of tokens, a two-layer network reads the scores and biases of all heads and adds a number to each score:
//
//   a = s q_m.k_n, b = B(m - n) of the heads     score(m,n) = a + b + W_2 leaky_relu(W_1 [a; b] + b_1) + b_2
//
// B is another encoding that adds a distance bias: kerple-log, the authors' best, or alibi, fire, ... Weights start
// like torch's linear layers, as in the authors' code. Each layer has its own weights and shares B
// if B does so without DAPE. The network mixes heads, so its hidden values are stored: mlp_width x T x S.
//
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
    const at::Tensor distance_BTS = positions.query.ids.unsqueeze(-1) - positions.key.ids.unsqueeze(-2);
    const at::Tensor row_BTS = distance_BTS.clamp(terms.bias.lo, terms.bias.hi) - terms.bias.lo;
    const at::Tensor& rows_HR = terms.bias.rows;
    return rows_HR.index_select(1, row_BTS.flatten()).unflatten(1, row_BTS.sizes()).transpose(0, 1);
  }

  int64_t heads_, head_dim_;
  std::shared_ptr<Encoding> bias_;
  std::vector<Parameter> weights_1_, biases_1_, weights_2_, biases_2_;
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

EncodingEntry cope() {
  return {.info = {.name = "cope",
                   .summary = "contextual positions: a query counts the tokens that it opens a gate for",
                   .equation = "s q_i.k_j + q_i.e[sum_{l = j .. i} sigmoid(s q_i.k_l)]",
                   .source = "Golovneva et al. 2024, arXiv 2405.18719 section 4",
                   .terms = "P, s",
                   .parameters = "L * D * npos_max",
                   .cost = "T * S * H * D + T * H * D * npos_max multiply-adds, and T * S * H numbers in memory",
                   .extrapolates = "counts beyond npos_max share the last row",
                   .keys = {"npos_max = 64"},
                   .needs = EncodingInfo::Needs::kCausal},
          .make = construct<Cope>};
}

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
