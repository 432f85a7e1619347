// PaTH (Yang et al. 2025, arXiv 2505.16381 section 3; R-REL-18): between a query and a key stands the product of a
// reflection for each token after the key, up to the query, made of x, the input of the layer,
//
//   score(i,j) = s k_j . H_{j+1} .. H_i q_i     H_t = I - beta_t w_t w_t^T     beta_t = 2 sigmoid(u.x_t + b)
//   w_t = v_t / |v_t|     v_t = silu(c_0 * z_{t-2} + c_1 * z_{t-1} + c_2 * z_t)     z_t = W_1 W_0 x_t
//
// A product of reflections is I - W^T A^-1 D W with A = I + strict_lower(D W W^T) and D = diag(beta) (the UT transform,
// section 3.2), so that all scores are those without reflections and, with W, Q, K of all tokens,
//
//   P = -s lower(Q W^T) A^-1 D strict_lower(W K^T),
//
// a number for each pair of each head: S x S in memory, and a triangular system. The authors' kernel goes through
// blocks. Causal. Reflections follow the order of tokens within their sequence, whatever their positions are.
//
// Each head of the queries has its own w; the authors' program, from which the rank of W_1 W_0, the convolution and the
// names are, has one for each head of the keys. Its norms of queries and keys are not here; its forget gate is fox.
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/ranges.h>

#include <cmath>

#include "layer_parameters.h"
#include "read_vectors.h"
#include "rf/io/error.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

constexpr int64_t kTaps = 3;              // of the convolution
constexpr double kSmallestSquare = 1e-6;  // added to |v|^2, as in the authors' program

// x of the token so many places before, 0 where there is none. x: [B,S,..].
at::Tensor before(const at::Tensor& x_BSN, int64_t places) {
  return at::pad(x_BSN, {0, 0, places, 0}).narrow(1, 0, x_BSN.size(1));
}

class Path : public Encoding {
 public:
  Path(int64_t rank, const EncodingShape& shape)
      : heads_(shape.heads), head_dim_(shape.head_dim), width_(shape.hidden_size), rank_(rank) {
    const int64_t size = heads_ * head_dim_;
    const auto parameters = [&](const std::string& name, std::vector<int64_t> sizes) {
      return layer_parameters(*this, shape.layers, name, [&shape, sizes] { return drawn(sizes, shape); });
    };
    inner_ = parameters("w_proj_0_weight", {rank, width_});
    outer_ = parameters("w_proj_1_weight", {size, rank});
    taps_ = parameters("w_conv1d_weight", {size, kTaps});
    beta_weights_ = parameters("bt_proj_weight", {heads_, width_});
    beta_biases_ = layer_parameters(*this, shape.layers, "bt_proj_bias", [&] { return at::zeros({heads_}); });
  }

  bool reads_vectors() const override { return true; }
  int64_t numbers_per_token() const override { return rank_ + heads_; }

  // W_0 x and u.x + b, [B,T,rank + H].
  at::Tensor token_numbers(int64_t layer, const at::Tensor& hidden_BTC) const override {
    if (hidden_BTC.dim() != 3 || hidden_BTC.size(2) != width_) {
      fail("path", "hidden_states must be [batch, tokens, {}], got [{}]", width_, fmt::join(hidden_BTC.sizes(), ", "));
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::ScalarType type = at::promote_types(inner_.at(layer)->scalar_type(), at::kFloat);
    const at::Tensor x_BTC = hidden_BTC.to(type);
    return at::cat({at::linear(x_BTC, inner_.at(layer)->to(type)),
                    at::linear(x_BTC, beta_weights_.at(layer)->to(type), beta_biases_.at(layer)->to(type))},
                   2);
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const ReadVectors x = read_vectors("path", projections, head_dim_);
    if (x.q_BTHD.size(2) != heads_) fail("path", "queries must have {} heads, got {}", heads_, x.q_BTHD.size(2));
    const at::ScalarType dtype = x.q_BTHD.scalar_type();
    const at::Tensor numbers_BSN = projections.token_numbers_BSN.to(dtype);
    const at::Tensor together_BSS = same_sequence(shared.positions.sequences_BS);
    const at::Tensor w_BSHD = directions(layer, numbers_BSN.narrow(2, 0, rank_), together_BSS);
    const at::Tensor beta_BH1S = 2 * at::sigmoid(numbers_BSN.narrow(2, rank_, heads_)).transpose(1, 2).unsqueeze(2);
    const int64_t keys = x.k_BSHD.size(1), earlier = keys - x.q_BTHD.size(1);
    const auto products = [&](const at::Tensor& rows_BTHD, const at::Tensor& columns_BSHD) {
      const at::Tensor found_BHTS = at::einsum("bthd,bshd->bhts", {rows_BTHD, columns_BSHD});
      if (!together_BSS.defined()) return found_BHTS;
      const int64_t first = keys - found_BHTS.size(2);
      return found_BHTS * together_BSS.narrow(1, first, keys - first).unsqueeze(1);
    };
    const at::Tensor met_BHTS = products(x.q_BTHD, w_BSHD).tril(earlier);
    const at::Tensor a_BHSS =
        at::eye(keys, w_BSHD.options()) + beta_BH1S.transpose(2, 3) * products(w_BSHD, w_BSHD).tril(-1);
    const at::Tensor reflected_BHTS =
        at::linalg_solve_triangular(a_BHSS, met_BHTS, /*upper=*/false, /*left=*/false, /*unitriangular=*/true);
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim_));
    Terms terms = shared.terms;
    terms.scale = scale;
    terms.pair_bias = -scale * at::matmul(reflected_BHTS * beta_BH1S, products(w_BSHD, x.k_BSHD).tril(-1));
    return terms;
  }

 private:
  // 1 where two tokens are of one sequence, 0 elsewhere; undefined where all tokens of a row are.
  static at::Tensor same_sequence(const at::Tensor& sequences_BS) {
    return sequences_BS.defined() ? sequences_BS.unsqueeze(2).eq(sequences_BS.unsqueeze(1)) : at::Tensor();
  }

  // w of each token, of length 1.
  at::Tensor directions(int64_t layer, const at::Tensor& inner_BSr, const at::Tensor& together_BSS) const {
    const at::ScalarType dtype = inner_BSr.scalar_type();
    const at::Tensor z_BSN = at::linear(inner_BSr, outer_.at(layer)->to(dtype)), taps_N3 = taps_.at(layer)->to(dtype);
    at::Tensor v_BSN = z_BSN * taps_N3.select(1, kTaps - 1);
    for (int64_t places = 1; places < std::min(kTaps, z_BSN.size(1)); ++places) {
      at::Tensor earlier_BSN = before(z_BSN, places);
      if (together_BSS.defined()) {
        const at::Tensor together_BS = at::pad(together_BSS.diagonal(-places, 1, 2), {places, 0});
        earlier_BSN = earlier_BSN * together_BS.unsqueeze(2);
      }
      v_BSN = v_BSN + earlier_BSN * taps_N3.select(1, kTaps - 1 - places);
    }
    const at::Tensor v_BSHD = at::silu(v_BSN).unflatten(2, {heads_, head_dim_});
    return v_BSHD * (v_BSHD.square().sum({-1}, /*keepdim=*/true) + kSmallestSquare).rsqrt();
  }

  int64_t heads_, head_dim_, width_, rank_;
  std::vector<Parameter> inner_, outer_, taps_, beta_weights_, beta_biases_;
};

}  // namespace

EncodingEntry path() {
  return {.info = {.name = "path",
                   .summary = "reflections that the tokens between query and key give",
                   .equation = "s k_j . H_{j+1} .. H_i q_i, H_t = I - beta_t w_t w_t^T, beta_t = 2 sigmoid(u.x_t + b)",
                   .source = "Yang et al. 2025, arXiv 2505.16381 section 3",
                   .terms = "P, s",
                   .parameters = "L * (w_rank (C + H D) + 3 H D + H (C + 1))",
                   .cost = "S * S * H * (T / 2 + 3 D) multiply-adds, and 3 S * S * H numbers in memory",
                   .extrapolates = "yes, by design",
                   .file = "nn/posenc/path.cpp",
                   .test = "tests/nn/test_path.py",
                   .keys = {"w_rank = 32"},
                   .needs = EncodingInfo::Needs::kCausal,
                   .pairwise = EncodingInfo::Pairwise::kYes},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Path>(options.integer("w_rank", 32, 1, 1 << 20), shape);
          }};
}

}  // namespace rf::nn::posenc
