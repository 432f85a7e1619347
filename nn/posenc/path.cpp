// PaTH (Yang et al. 2025, arXiv 2505.16381 section 3; R-REL-18): the score of a query and a key contains a product of
// reflections, one for each token after the key, up to the query. They are computed from x, the input of the layer,
//
//   score(i,j) = s q_i . H_i .. H_{j+1} k_j     H_t = I - beta_t w_t w_t^T     beta_t = 2 sigmoid(u.x_t + b)
//   w_t = v_t / |v_t|     v_t = silu(c_0 * z_{t-2} + c_1 * z_{t-1} + c_2 * z_t)     z_t = W_1 W_0 x_t
//
// The product of a block's reflections is E = I - W^T M W with M = (I + strict_lower(D W W^T))^-1 D, W the rows w_t and
// D = diag(beta) (the UT transform, section 3.2). Queries are transformed to the start of their block and keys to the
// end of theirs. The E of the blocks in between connect both (section 3.3):
//
//   Q' = Q - lower(Q W^T) M W     K' = K - (M strict_lower(W K^T))^T W     score(i,j) = s Q'_i . E .. E K'_j
//
// Within a block it is s (Q K^T - lower(Q W^T) M strict_lower(W K^T)). Attention takes the difference from s q.k as one
// number per pair: T x S for each head in memory. Causal. Reflections follow the order of tokens within their sequence,
// regardless of their positions; padding adds no reflection.
//
// Each query head has its own w; the authors' code has one for each key head. The rank of W_1 W_0, the convolution and
// the names follow that code. Its norms of queries and keys are not implemented; its forget gate is fox.
#include <ATen/TensorOperators.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "layer_parameters.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

constexpr int64_t kTaps = 3;              // of the convolution
constexpr double kSmallestSquare = 1e-6;  // added to |v|^2, as in the authors' code
constexpr int64_t kBlock = 128;           // tokens

at::Tensor transposed(const at::Tensor& x) { return x.transpose(-2, -1); }

// Tokens [B,H,S,D] as blocks [B,H,blocks,block,D], padded with zeros on both sides.
at::Tensor in_blocks(const at::Tensor& x_BHSD, int64_t before, int64_t block) {
  const int64_t after = (block - (before + x_BHSD.size(2)) % block) % block;
  return at::pad(x_BHSD, {0, 0, before, after}).unflatten(2, {-1, block});
}

// q_i . H_i .. H_{j+1} k_j, [B,H,T,S]; 0 for keys after their query. The queries are the last tokens. beta: [B,H,S].
at::Tensor reflected_scores(const at::Tensor& q_BHTD, const at::Tensor& k_BHSD, const at::Tensor& w_BHSD,
                            const at::Tensor& beta_BHS) {
  const int64_t queries = q_BHTD.size(2), keys = k_BHSD.size(2), block = std::min(keys, kBlock);
  const int64_t first = (keys - queries) / block;  // the first block with queries
  const at::Tensor q = in_blocks(q_BHTD, keys - queries - first * block, block);
  const at::Tensor k = in_blocks(k_BHSD, 0, block), w = in_blocks(w_BHSD, 0, block);
  const at::Tensor beta = in_blocks(beta_BHS.unsqueeze(3), 0, block);
  const int64_t blocks = k.size(2), of_queries = blocks - first;
  const at::Tensor a = at::eye(block, w.options()) + (beta * at::matmul(w, transposed(w))).tril(-1);
  const at::Tensor m = at::linalg_solve_triangular(a, at::diag_embed(beta.squeeze(4)), /*upper=*/false, /*left=*/true,
                                                   /*unitriangular=*/true);
  const at::Tensor w_of_q = w.narrow(2, first, of_queries), m_of_q = m.narrow(2, first, of_queries);
  const at::Tensor met_by_q = at::matmul(at::matmul(q, transposed(w_of_q)).tril(), m_of_q);
  const at::Tensor meeting_k = at::matmul(w, transposed(k)).tril(-1);
  const at::Tensor within = at::matmul(q, transposed(k.narrow(2, first, of_queries))).tril() -
                            at::matmul(met_by_q, meeting_k.narrow(2, first, of_queries));
  const at::Tensor k_at_end = transposed(k - at::matmul(transposed(at::matmul(m, meeting_k)), w));
  const at::Tensor passed = at::eye(w.size(4), w.options()) - at::matmul(transposed(w), at::matmul(m, w));
  // Tiles of a query's block and the key's block at a given offset before it, for all query blocks for which it exists.
  std::vector<std::vector<at::Tensor>> tiles = {within.unbind(2)};
  at::Tensor arriving = q - at::matmul(met_by_q, w_of_q);
  for (int64_t apart = 1; apart < blocks; ++apart) {
    const int64_t from = std::max(first, apart), count = blocks - from;
    arriving = arriving.narrow(2, arriving.size(2) - count, count);
    if (apart > 1) arriving = at::matmul(arriving, passed.narrow(2, from - apart + 1, count));
    tiles.push_back(at::matmul(arriving, k_at_end.narrow(2, from - apart, count)).unbind(2));
  }
  std::vector<at::Tensor> rows;
  for (int64_t of_query = first; of_query < blocks; ++of_query) {
    std::vector<at::Tensor> row;
    for (int64_t of_key = 0; of_key <= of_query; ++of_key) {
      const auto apart = static_cast<size_t>(of_query - of_key);
      row.push_back(tiles[apart][static_cast<size_t>(of_query - std::max(first, of_query - of_key))]);
    }
    row.push_back(at::zeros({q.size(0), q.size(1), block, (blocks - 1 - of_query) * block}, q.options()));
    rows.push_back(at::cat(row, 3));
  }
  return at::cat(rows, 2).narrow(2, keys - queries - first * block, queries).narrow(3, 0, keys);
}

// A token order [1 or B, S] in which each sequence is contiguous; undefined if all sequences are contiguous already.
// Padding keeps its place.
at::Tensor order_of_runs(const at::Tensor& sequence_ids_BS) {
  const at::Tensor highest_BS = std::get<0>(sequence_ids_BS.cummax(1));
  const at::Tensor is_inside_BS = sequence_ids_BS.lt(0).logical_and(highest_BS.ge(0));
  const at::Tensor name_BS = sequence_ids_BS.masked_fill(is_inside_BS, std::numeric_limits<int32_t>::max());
  if (name_BS.diff(1, 1).ge(0).all().item<bool>()) return {};
  return at::argsort(name_BS, /*stable=*/true, /*dim=*/1);
}

class Path : public LengthFreeEncoding {
 public:
  Path(io::StrictObject& options, const EncodingShape& shape)
      : heads_(shape.heads),
        head_dim_(shape.head_dim),
        width_(shape.hidden_size),
        rank_(options.integer("w_rank", 32, 1, 1 << 20)) {
    const int64_t size = heads_ * head_dim_;
    const auto parameters = [&](const std::string& name, std::vector<int64_t> sizes) {
      return layer_parameters(*this, shape.layers, name, [&shape, sizes] { return drawn(sizes, shape); });
    };
    inner_ = parameters("w_proj_0_weight", {rank_, width_});
    outer_ = parameters("w_proj_1_weight", {size, rank_});
    taps_ = parameters("w_conv1d_weight", {size, kTaps});
    beta_weights_ = parameters("bt_proj_weight", {heads_, width_});
    beta_biases_ = layer_parameters(*this, shape.layers, "bt_proj_bias", [&] { return at::zeros({heads_}); });
  }

  bool reads_vectors() const override { return true; }
  bool reads_sequences() const override { return true; }
  int64_t numbers_per_token() const override { return rank_ + heads_; }

  // W_0 x and u.x + b, [B,T,rank + H].
  at::Tensor token_numbers(int64_t layer, const at::Tensor& hidden_BTC) const override {
    const NoAutocast no_autocast;
    const at::Tensor x_BTC = read_hidden("path", hidden_BTC, width_, inner_.at(layer));
    const at::ScalarType type = x_BTC.scalar_type();
    return at::cat({at::linear(x_BTC, inner_.at(layer)->to(type)),
                    at::linear(x_BTC, beta_weights_.at(layer)->to(type), beta_biases_.at(layer)->to(type))},
                   2);
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    const NoAutocast no_autocast;
    const ReadVectors x = read_vectors("path", projections, head_dim_, heads_);
    const at::Tensor q_BHTD = x.q_BTHD.transpose(1, 2), k_BHSD = x.k_BSHD.transpose(1, 2);
    const at::Tensor numbers_BSN = projections.token_numbers_BSN.to(q_BHTD.scalar_type());
    const at::Tensor scores_BHTS = scores(layer, q_BHTD, k_BHSD, numbers_BSN, shared.positions.sequence_ids_BS);
    return {.pair_bias = (scores_BHTS - at::matmul(q_BHTD, transposed(k_BHSD))) * x.scale, .scale = x.scale};
  }

 private:
  at::Tensor scores(int64_t layer, const at::Tensor& q_BHTD, const at::Tensor& k_BHSD, const at::Tensor& numbers_BSN,
                    const at::Tensor& names_BS) const {
    const int64_t batch = k_BHSD.size(0), queries = q_BHTD.size(2), keys = k_BHSD.size(2);
    if (batch == 0 || queries == 0 || keys == 0) return at::matmul(q_BHTD, transposed(k_BHSD));
    const at::Tensor sequence_ids_BS = on_device(names_BS, q_BHTD.device());
    const at::Tensor order = names_BS.defined() ? on_device(order_of_runs(names_BS), q_BHTD.device()) : at::Tensor();
    if (!order.defined()) return scores_of_runs(layer, q_BHTD, k_BHSD, numbers_BSN, sequence_ids_BS);
    const at::Tensor order_BS = order.expand({batch, -1}), back_BS = at::argsort(order_BS, /*stable=*/true, /*dim=*/1);
    const auto taken = [](const at::Tensor& x, int64_t dim, const at::Tensor& places_BS) {
      std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
      shape[0] = places_BS.size(0);
      shape[static_cast<size_t>(dim)] = places_BS.size(1);
      return x.gather(dim, places_BS.view(shape).expand_as(x));
    };
    const at::Tensor q_BHSD = at::pad(q_BHTD, {0, 0, keys - queries, 0});
    const at::Tensor found_BHSS =
        scores_of_runs(layer, taken(q_BHSD, 2, order_BS), taken(k_BHSD, 2, order_BS), taken(numbers_BSN, 1, order_BS),
                       taken(sequence_ids_BS.expand({batch, -1}), 1, order_BS));
    return taken(taken(found_BHSS, 2, back_BS), 3, back_BS).narrow(2, keys - queries, queries);
  }

  // For rows in which each sequence is contiguous. Pairs from two sequences get arbitrary numbers.
  at::Tensor scores_of_runs(int64_t layer, const at::Tensor& q_BHTD, const at::Tensor& k_BHSD,
                            const at::Tensor& numbers_BSN, const at::Tensor& sequence_ids_BS) const {
    const at::Tensor w_BSHD = directions(layer, numbers_BSN.narrow(2, 0, rank_), sequence_ids_BS);
    at::Tensor beta_BSH = 2 * at::sigmoid(numbers_BSN.narrow(2, rank_, heads_));
    if (sequence_ids_BS.defined()) beta_BSH = beta_BSH * sequence_ids_BS.ge(0).unsqueeze(2);
    return reflected_scores(q_BHTD, k_BHSD, w_BSHD.transpose(1, 2), beta_BSH.transpose(1, 2));
  }

  // w of each token, normalised to length 1.
  at::Tensor directions(int64_t layer, const at::Tensor& inner_BSr, const at::Tensor& sequence_ids_BS) const {
    const at::ScalarType dtype = inner_BSr.scalar_type();
    const at::Tensor z_BSN = at::linear(inner_BSr, outer_.at(layer)->to(dtype)), taps_N3 = taps_.at(layer)->to(dtype);
    const int64_t tokens = z_BSN.size(1);
    at::Tensor v_BSN = z_BSN * taps_N3.select(1, kTaps - 1);
    for (int64_t apart = 1; apart < std::min(kTaps, tokens); ++apart) {
      at::Tensor earlier_BSN = z_BSN.narrow(1, 0, tokens - apart);
      if (sequence_ids_BS.defined()) {
        const auto part = [&](int64_t from) { return sequence_ids_BS.narrow(1, from, tokens - apart); };
        earlier_BSN = earlier_BSN * part(apart).eq(part(0)).unsqueeze(2);
      }
      v_BSN = v_BSN + at::pad(earlier_BSN, {0, 0, apart, 0}) * taps_N3.select(1, kTaps - 1 - apart);
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
                   .summary = "a Householder-like reflection for each token between query and key",
                   .equation = "s q_i . H_i .. H_{j+1} k_j, H_t = I - beta_t w_t w_t^T, beta_t = 2 sigmoid(u.x_t + b)",
                   .source = "Yang et al. 2025, arXiv 2505.16381 section 3",
                   .terms = "P, s",
                   .parameters = "L * (w_rank (C + H D) + 3 H D + H (C + 1))",
                   .cost = "T * S * H * D (1 + D / 256) multiply-adds, and T * S * H numbers in memory",
                   .extrapolates = "yes, by design",
                   .keys = {"w_rank = 32"},
                   .needs = EncodingInfo::Needs::kCausal},
          .make = construct<Path>};
}

}  // namespace rf::nn::posenc
