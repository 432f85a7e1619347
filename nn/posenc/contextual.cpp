// Scores that depend on the tokens between query and key, or on all heads.
#include <ATen/TensorOperators.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

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
at::Tensor order_of_runs(const at::Tensor& sequences_BS) {
  const at::Tensor highest_BS = std::get<0>(sequences_BS.cummax(1));
  const at::Tensor is_inside_BS = sequences_BS.lt(0).logical_and(highest_BS.ge(0));
  const at::Tensor name_BS = sequences_BS.masked_fill(is_inside_BS, std::numeric_limits<int32_t>::max());
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
    const at::Tensor scores_BHTS = scores(layer, q_BHTD, k_BHSD, numbers_BSN, shared.positions.sequences_BS);
    return {.pair_bias = (scores_BHTS - at::matmul(q_BHTD, transposed(k_BHSD))) * x.scale, .scale = x.scale};
  }

 private:
  at::Tensor scores(int64_t layer, const at::Tensor& q_BHTD, const at::Tensor& k_BHSD, const at::Tensor& numbers_BSN,
                    const at::Tensor& sequences_BS) const {
    const int64_t batch = k_BHSD.size(0), queries = q_BHTD.size(2), keys = k_BHSD.size(2);
    if (batch == 0 || queries == 0 || keys == 0) return at::matmul(q_BHTD, transposed(k_BHSD));
    const at::Tensor order = sequences_BS.defined() ? order_of_runs(sequences_BS) : at::Tensor();
    if (!order.defined()) return scores_of_runs(layer, q_BHTD, k_BHSD, numbers_BSN, sequences_BS);
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
                       taken(sequences_BS.expand({batch, -1}), 1, order_BS));
    return taken(taken(found_BHSS, 2, back_BS), 3, back_BS).narrow(2, keys - queries, queries);
  }

  // For rows in which each sequence is contiguous. Pairs from two sequences get arbitrary numbers.
  at::Tensor scores_of_runs(int64_t layer, const at::Tensor& q_BHTD, const at::Tensor& k_BHSD,
                            const at::Tensor& numbers_BSN, const at::Tensor& sequences_BS) const {
    const at::Tensor w_BSHD = directions(layer, numbers_BSN.narrow(2, 0, rank_), sequences_BS);
    at::Tensor beta_BSH = 2 * at::sigmoid(numbers_BSN.narrow(2, rank_, heads_));
    if (sequences_BS.defined()) beta_BSH = beta_BSH * sequences_BS.ge(0).unsqueeze(2);
    return reflected_scores(q_BHTD, k_BHSD, w_BSHD.transpose(1, 2), beta_BSH.transpose(1, 2));
  }

  // w of each token, normalised to length 1.
  at::Tensor directions(int64_t layer, const at::Tensor& inner_BSr, const at::Tensor& sequences_BS) const {
    const at::ScalarType dtype = inner_BSr.scalar_type();
    const at::Tensor z_BSN = at::linear(inner_BSr, outer_.at(layer)->to(dtype)), taps_N3 = taps_.at(layer)->to(dtype);
    const int64_t tokens = z_BSN.size(1);
    at::Tensor v_BSN = z_BSN * taps_N3.select(1, kTaps - 1);
    for (int64_t apart = 1; apart < std::min(kTaps, tokens); ++apart) {
      at::Tensor earlier_BSN = z_BSN.narrow(1, 0, tokens - apart);
      if (sequences_BS.defined()) {
        const auto part = [&](int64_t from) { return sequences_BS.narrow(1, from, tokens - apart); };
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

EncodingEntry path() {
  return {.info = {.name = "path",
                   .summary = "reflections that the tokens between query and key give",
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
