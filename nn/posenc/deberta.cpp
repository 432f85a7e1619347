// DeBERTa's disentangled attention (He et al. 2020, arXiv 2006.03654; arXiv 2104.09864 Eq. 10): queries are multiplied
// by keys and by distance vectors, and keys by distance vectors.
//
//   score(m,n) = s [ q_m.k_n + q_m.(W_kr P[delta(m,n)]) + k_n.(W_qr P[delta(m,n)]) ]
//   delta(m,n) = clamp(m - n, -k, k - 1) + k
//
// The second term is "c2p", the third "p2c"; "pos_att_type" lists one or both. s = 1/sqrt((1 + their number) D). In p2c
// the paper prints delta(n,m), while its code and Eq. 10 use delta(m,n): "p2c" is "paper" or "code". k is
// "max_relative_positions"; "position_buckets" > 0 maps distances to that many buckets per side (DeBERTa-v2),
// which then replace m - n and k.
//
// All layers share P [2k, C]; "norm_rel_ebd": "layer_norm" normalises its rows (DeBERTa-v2), with "layer_norm_eps".
// Each layer has W_kr and W_qr [H*D, C], with biases; with "share_att_key" they are its W_k and W_q. "pos_key_bias":
// false leaves out the bias of W_kr (DeBERTa-v1). P and the matrices start as N(0, initializer_range^2), biases as 0.
//
// deberta-literal is Eq. 10 as printed: both terms, P through W_k and W_q (without their biases, which k and q already
// contain), s = 1/sqrt(D).
//
// Not implemented: absolute positions before the last layers (EMD).
#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "distance_buckets.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

enum class Projection { kOwn, kOfContent, kOfContentWithoutBias };
enum class Sign { kQueryMinusKey, kKeyMinusQuery };  // of p2c

class Deberta : public Encoding {
 public:
  enum class Form { kPublished, kLiteral };

  Deberta(Form form, io::StrictObject& options, const EncodingShape& shape) : name_(options.path()), shape_(shape) {
    read_distances(options);
    if (form == Form::kLiteral) {
      projection_ = Projection::kOfContentWithoutBias;
    } else {
      read_terms(options);
    }
    table_RC_ = register_parameter("rel_embeddings", drawn({table_rows_, shape.hidden_size}, shape));
    if (norm_eps_) {
      norm_weight_C_ = register_parameter("norm_weight", at::ones({shape.hidden_size}));
      norm_bias_C_ = register_parameter("norm_bias", at::zeros({shape.hidden_size}));
    }
    if (projection_ != Projection::kOwn) return;
    const int64_t all_heads = shape.heads * shape.head_dim;
    const auto weight = [&] { return drawn({all_heads, shape.hidden_size}, shape); };
    const auto bias = [&] { return at::zeros({all_heads}); };
    if (content_to_position_) {
      key_weights_ = layer_parameters(*this, shape.layers, "pos_key_proj_weight", weight);
      if (has_key_bias_) key_biases_ = layer_parameters(*this, shape.layers, "pos_key_proj_bias", bias);
    }
    if (position_to_content_) {
      query_weights_ = layer_parameters(*this, shape.layers, "pos_query_proj_weight", weight);
      query_biases_ = layer_parameters(*this, shape.layers, "pos_query_proj_bias", bias);
    }
  }

  // The part of P, shared by all layers, for the distances lo..hi of this call: one row for each of their buckets.
  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    auto [lo, hi] = distance_range(positions, -delta_.lo);
    if (sign_ == Sign::kKeyMinusQuery) {  // the same rows for the opposite distances
      hi = std::max(-lo, hi);
      lo = -hi;
    }
    lo = std::min(lo, delta_.hi);
    hi = std::min(hi, delta_.hi);
    const int64_t first = row_of(lo), count = row_of(hi) - first + 1;
    at::Tensor rows_RC = table_RC_->narrow(0, first, count);
    if (norm_eps_) rows_RC = at::layer_norm(rows_RC, {shape_.hidden_size}, norm_weight_C_, norm_bias_C_, *norm_eps_);
    return {.terms = {.scale = scale_}, .table = {rows_RC.unsqueeze(0), lo, hi}};
  }

  void check_length(int64_t tokens) const override { distance_range(ends_of_sequence(tokens), -delta_.lo); }
  int64_t last_new_length() const override { return 1 - delta_.lo; }

  bool reads_projections() const override { return projection_ != Projection::kOwn; }
  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    Terms terms = shared.terms;
    const DistanceTable& table = shared.table;
    const auto rows = [&](const auto& weights, const auto& biases, const at::Tensor& weight, const at::Tensor& bias) {
      if (projection_ == Projection::kOwn)
        return by_distance(table, weights.at(layer), biases.empty() ? at::Tensor() : at::Tensor(biases.at(layer)));
      if (!weight.defined()) fail(name_, "terms must be given the layer's projections, got none");
      return by_distance(table, weight, projection_ == Projection::kOfContent ? bias : at::Tensor());
    };
    if (content_to_position_) {
      terms.key_table = {rows(key_weights_, key_biases_, projections.key_weight, projections.key_bias), table.lo,
                         table.hi};
    }
    if (position_to_content_) {
      const at::Tensor rows_HRD = rows(query_weights_, query_biases_, projections.query_weight, projections.query_bias);
      if (sign_ == Sign::kQueryMinusKey) {
        terms.query_table = {rows_HRD, table.lo, table.hi};
      } else {
        terms.query_table = {rows_HRD.flip(1), -table.hi, -table.lo};
      }
    }
    return terms;
  }

 private:
  int64_t row_of(int64_t distance) const {
    return delta_.rows.defined() ? delta_.rows[distance - delta_.lo].item<int64_t>() : distance - delta_.lo;
  }

  // A part of P after a projection, [H, hi - lo + 1, D].
  at::Tensor by_distance(const DistanceTable& table, const at::Tensor& weight, const at::Tensor& bias) const {
    const at::Tensor rows_HRD = projected_rows(table.rows.squeeze(0), weight, bias, shape_);
    if (!delta_.rows.defined()) return rows_HRD;
    const at::Tensor reached = delta_.rows.narrow(0, table.lo - delta_.lo, table.hi - table.lo + 1);
    return rows_HRD.index_select(1, on_device(reached - reached[0], rows_HRD.device()));
  }

  // k, or the number of buckets per side, and the row of each distance.
  void read_distances(io::StrictObject& options) {
    constexpr const char *kPositions = "max_relative_positions", *kBuckets = "position_buckets";
    int64_t k = options.integer(kPositions, -1, -1, int64_t{1} << 20);
    if (k == 0) {
      fail("position_encoding", "{} must be -1 (max_position_embeddings) or at least 1, got 0",
           options.path_of(kPositions));
    }
    if (k < 0) k = shape_.max_position_embeddings;
    const int64_t buckets = options.integer(kBuckets, -1, -1, kMaxLogBuckets);
    if (buckets < 0) {
      table_rows_ = 2 * k;
      delta_ = {.rows = {}, .lo = -k, .hi = k - 1};
      return;
    }
    if (buckets < 4 || buckets % 2 != 0) {
      fail("position_encoding", "{} must be -1 (none) or an even number from 4 to {}, got {}",
           options.path_of(kBuckets), kMaxLogBuckets, buckets);
    }
    if (k <= buckets / 2 + 1) {
      fail("position_encoding", "{} must be above {} for {} = {}, got {}", options.path_of(kPositions), buckets / 2 + 1,
           kBuckets, buckets, k);
    }
    table_rows_ = 2 * buckets;
    delta_ = symmetric_log_buckets(buckets, k);
  }

  void read_terms(io::StrictObject& options) {
    if (const nlohmann::json* value = options.find("pos_att_type")) read_products(options, *value);
    if (options.boolean("share_att_key", false)) projection_ = Projection::kOfContent;
    if (projection_ == Projection::kOwn) has_key_bias_ = options.boolean("pos_key_bias", true);
    if (options.choice("norm_rel_ebd", false, {{"none", false}, {"layer_norm", true}}))
      norm_eps_ = options.number("layer_norm_eps", 1e-7, {0, 1, io::NumberRange::Ends::kOpenLow});
    if (const nlohmann::json* sign = options.find("p2c"); sign != nullptr && !position_to_content_) {
      fail("position_encoding", "{} must be absent where pos_att_type lists no p2c, got {}", options.path_of("p2c"),
           sign->dump());
    }
    sign_ =
        options.choice("p2c", Sign::kQueryMinusKey, {{"code", Sign::kQueryMinusKey}, {"paper", Sign::kKeyMinusQuery}});
    const int terms = 1 + (content_to_position_ ? 1 : 0) + (position_to_content_ ? 1 : 0);
    scale_ = 1 / std::sqrt(static_cast<double>(shape_.head_dim * terms));
  }

  // A list of names, or one string with names separated by bars, as in transformers.
  void read_products(const io::StrictObject& options, const nlohmann::json& value) {
    std::vector<std::string> names;
    if (value.is_string()) {
      std::istringstream text(value.get<std::string>());
      for (std::string name; std::getline(text, name, '|');) names.push_back(name);
    } else if (value.is_array()) {
      for (const nlohmann::json& name : value)
        names.push_back(name.is_string() ? name.get<std::string>() : name.dump());
    }
    const auto known = [](const std::string& name) { return name == "c2p" || name == "p2c"; };
    if (names.empty() || !std::all_of(names.begin(), names.end(), known)) {
      fail("position_encoding", "{} must list c2p, p2c or both, got {}", options.path_of("pos_att_type"), value.dump());
    }
    content_to_position_ = std::find(names.begin(), names.end(), "c2p") != names.end();
    position_to_content_ = std::find(names.begin(), names.end(), "p2c") != names.end();
  }

  std::string name_;  // for messages
  EncodingShape shape_;
  bool content_to_position_ = true, position_to_content_ = true;
  Projection projection_ = Projection::kOwn;
  Sign sign_ = Sign::kQueryMinusKey;
  int64_t table_rows_ = 0;          // of P
  DistanceTable delta_;             // without rows, distance d is in row d - lo
  std::optional<double> scale_;     // absent: 1/sqrt(D)
  Parameter table_RC_;              // P
  std::optional<double> norm_eps_;  // absent: P is not normed
  Parameter norm_weight_C_, norm_bias_C_;
  bool has_key_bias_ = true;
  std::vector<Parameter> key_weights_, key_biases_;      // W_kr of each layer
  std::vector<Parameter> query_weights_, query_biases_;  // W_qr
};

}  // namespace

EncodingEntry deberta() {
  return {.info = {.name = "deberta",
                   .summary = "content-to-position and position-to-content scores, through projections of their own",
                   .equation = "score = s [q.k + q.(W_kr P[r]) + k.(W_qr P[r])], s = 1/sqrt(3D)",
                   .source = "He et al. 2020, arXiv 2006.03654; arXiv 2104.09864 Eq. 10",
                   .terms = "K, Q, s",
                   .parameters = "2k * C + 2 L * (C + 1) * H * D, k = max_relative_positions or position_buckets; "
                                 "2k * C with share_att_key; 2 C more with norm_rel_ebd",
                   .cost = "(T + S) * N * H * D multiply-adds, N = min(T + S, 2 max_relative_positions), and at most "
                           "4k * C * H * D for the tables",
                   .extrapolates = "yes, far distances share a row",
                   .keys = {"max_relative_positions = -1 (max_position_embeddings)", "position_buckets = -1 (none)",
                            "pos_att_type = [\"c2p\", \"p2c\"]", "share_att_key = false", "pos_key_bias = true",
                            "p2c = \"code\" (or \"paper\")", "norm_rel_ebd = none (or layer_norm)",
                            "layer_norm_eps = 1e-07 (with norm_rel_ebd)"}},
          .make = construct<Deberta, Deberta::Form::kPublished>};
}

EncodingEntry deberta_literal() {
  EncodingInfo info = deberta().info;
  info.name = "deberta-literal";
  info.summary = "deberta as Eq. 10 prints it, distances multiplied by W_q and W_k";
  info.equation = "score = s [q.k + q.(W_k P[r]) + k.(W_q P[r])]";
  info.source = "arXiv 2104.09864 Eq. 10";
  info.terms = "K, Q";
  info.parameters = "2k * C, k = max_relative_positions or position_buckets";
  info.keys.resize(2);  // the distances
  return {.info = info, .make = construct<Deberta, Deberta::Form::kLiteral>};
}

}  // namespace rf::nn::posenc
