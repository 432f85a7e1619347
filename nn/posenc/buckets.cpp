// Biases and vectors by buckets of distances.
#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"

namespace rf::nn::posenc {

namespace {

// Tables with one row per bucket of distances map each distance, query minus key, to its row, in a DistanceTable with
// rows int64 [hi - lo + 1]. Buckets hold single distances near zero and grow logarithmically farther out. Thresholds
// are exact, computed with integers; published implementations use float32 logarithms and may round a distance on a
// threshold to either side.
//
// An integer of any size, lowest digits first.
using Digits = std::vector<uint32_t>;

void multiply_by_power(Digits& digits, int64_t factor, int64_t exponent) {
  for (int64_t i = 0; i < exponent; ++i) {
    uint64_t carry = 0;
    for (uint32_t& digit : digits) {
      carry += static_cast<uint64_t>(digit) * static_cast<uint64_t>(factor);
      digit = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) digits.push_back(static_cast<uint32_t>(carry));
  }
}

// The sign of steps ln(d / exact) - step ln(farthest / exact): the side of a threshold on which d lies, 0 if d is on
// it. Arguments are below 2^32.
int compare_logs(int64_t d, int64_t exact, int64_t steps, int64_t farthest, int64_t step) {
  const auto log_of = [exact](int64_t x) { return std::log(static_cast<double>(x) / static_cast<double>(exact)); };
  const double difference = static_cast<double>(steps) * log_of(d) - static_cast<double>(step) * log_of(farthest);
  constexpr double kSure = 1e-9;  // far above the error of the line above for at most 1024 steps
  if (std::abs(difference) > kSure) return difference > 0 ? 1 : -1;
  Digits left = {1}, right = {1};  // d^steps exact^step against farthest^step exact^steps
  multiply_by_power(left, d, steps);
  multiply_by_power(left, exact, step);
  multiply_by_power(right, farthest, step);
  multiply_by_power(right, exact, steps);
  if (left.size() != right.size()) return left.size() > right.size() ? 1 : -1;
  const auto [l, r] = std::mismatch(left.rbegin(), left.rend(), right.rbegin());
  return l == left.rend() ? 0 : *l > *r ? 1 : -1;
}

// The bucket of distances 0, 1, .. up to the first in bucket count - 1.
std::vector<int64_t> one_direction(int64_t count, int64_t max_distance) {
  const int64_t exact = count / 2, steps = count - exact;
  std::vector<int64_t> buckets;
  for (int64_t d = 0, bucket = 0; bucket < count - 1; ++d) {
    if (d < exact) {
      bucket = d;
    } else {
      bucket = std::max(bucket, exact);
      while (bucket < count - 1 && compare_logs(d, exact, steps, max_distance, bucket + 1 - exact) >= 0) ++bucket;
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

enum class BucketDirections {
  kBoth,      // half of the buckets for keys after the query
  kPastOnly,  // all buckets for keys at or before the query; keys after it share bucket 0
};

// T5 (Raffel et al. 2020). With n buckets per direction and e = n / 2, distance d >= 0 is in bucket
//   d if d < e,   else min(n - 1, e + floor((n - e) ln(d / e) / ln(max_distance / e))),
// and keys after the query n buckets higher. Keys read: relative_attention_num_buckets = 32 (both directions together),
// relative_attention_max_distance = 128. Throws Error for values without valid buckets.
struct RelativeBuckets {
  int64_t count = 0;
  DistanceTable distances;
};

RelativeBuckets relative_buckets(io::StrictObject& options, BucketDirections directions) {
  constexpr const char *kCount = "relative_attention_num_buckets", *kDistance = "relative_attention_max_distance";
  const bool both = directions == BucketDirections::kBoth;
  const int64_t count = options.integer(kCount, 32, both ? 4 : 2, 1024);
  if (both && count % 2 != 0) {
    fail("position_encoding", "{} must be even, half for each direction, got {}", options.path_of(kCount), count);
  }
  const int64_t a_direction = both ? count / 2 : count;
  const int64_t max_distance = options.integer(kDistance, 128, a_direction / 2 + 1, int64_t{1} << 20);

  const std::vector<int64_t> past = one_direction(a_direction, max_distance);
  const int64_t farthest = static_cast<int64_t>(past.size()) - 1;
  std::vector<int64_t> rows;
  if (both) {
    for (int64_t d = farthest; d > 0; --d) rows.push_back(a_direction + past[d]);
  }
  rows.insert(rows.end(), past.begin(), past.end());
  return {.count = count,
          .distances = {.rows = at::tensor(rows, at::kLong), .lo = both ? -farthest : 0, .hi = farthest}};
}

// DeBERTa-v2 (He et al. 2021). With m = buckets / 2, distance d is in bucket
//   d if |d| <= m,   else sign(d) (m + ceil((m - 1) ln(|d| / m) / ln((max_positions - 1) / m))),
// and in row clamp(bucket + buckets, 0, 2 buckets - 1). buckets: even, >= 4; max_positions > m + 1.
DistanceTable symmetric_log_buckets(int64_t buckets, int64_t max_positions) {
  const int64_t exact = buckets / 2, steps = exact - 1;
  std::vector<int64_t> after = {0};  // buckets of distances 0, 1, .. up to the first in bucket `buckets`
  for (int64_t d = 1, bucket = 0; bucket < buckets; ++d) {
    if (d <= exact) {
      bucket = d;
    } else {
      while (compare_logs(d, exact, steps, max_positions - 1, bucket - exact) > 0) ++bucket;
    }
    after.push_back(std::min(bucket, buckets));
  }
  std::vector<int64_t> rows;
  for (size_t d = after.size() - 1; d > 0; --d) rows.push_back(buckets - after[d]);
  for (const int64_t bucket : after) rows.push_back(std::min(buckets + bucket, 2 * buckets - 1));
  const int64_t farthest = static_cast<int64_t>(after.size()) - 1;
  return {.rows = at::tensor(rows, at::kLong), .lo = -farthest, .hi = farthest};
}

// A trained bias for each head and bucket of distances, added to the scores (Raffel et al. 2020; arXiv 2104.09864 Eq.
// 8): score = q.k + b[bucket(n - m)]. All layers share one table. T5 does not divide q.k by sqrt(D); "scale": "sqrt"
// does, without scaling the bias. Keys after the query have separate buckets unless attention is causal. The table
// starts as N(0, initializer_range^2). Without 1/sqrt(D), the query and key projections are initialised as in T5
// (Encoding::scales_scores).
class T5 : public LengthFreeEncoding {
 public:
  T5(io::StrictObject& options, const EncodingShape& shape) {
    const RelativeBuckets buckets =
        relative_buckets(options, shape.causal ? BucketDirections::kPastOnly : BucketDirections::kBoth);
    distances_ = buckets.distances;
    scale_ = options.choice<std::optional<double>>("scale", 1.0, {{"none", 1.0}, {"sqrt", std::nullopt}});
    table_BH_ = register_parameter("relative_attention_bias", drawn({buckets.count, shape.heads}, shape));
    set_made_for(shape.causal ? MadeFor::kCausal : MadeFor::kBidirectional);
  }

  bool scales_scores() const override { return scale_ != 1.0; }

  Shared compute_shared(const Positions&, at::ScalarType) override {
    const at::Tensor rows_HR = table_BH_->t().index_select(1, distances_.rows);
    return {.terms = {.bias = {rows_HR, distances_.lo, distances_.hi}, .scale = scale_}};
  }

 private:
  DistanceTable distances_;
  std::optional<double> scale_;
  Parameter table_BH_;  // [buckets, H]
};

// TUPE (Ke et al. 2020, arXiv 2006.15595; arXiv 2104.09864 Eq. 9): scores of positions with positions are added to
// scores of words with words, without mixed terms. With layer-normed position vectors p, a = U_Q p + b_Q and c = U_K p
// + b_K,
//
//   score(m,n) = q.k / sqrt(2D) + reset(a[m].c[n] / sqrt(2D) + b[bucket(n - m)])
//
// tupe-r adds the bias b, outside the scale; tupe-a omits it. reset unties [CLS], the token at position 0: its row of
// scores gets one number per head, its column another. As in the paper's code, the table of vectors has one more row
// than positions, and the vector of position i is row i + 1. The numbers are
//   row = a_0.c_0 / sqrt(2D) + b[buckets/2],   col = a_1.c_1 / sqrt(2D) + b[buckets],   (0,0) belongs to the row
// where a_0, a_1 belong to table rows 0 and 1, no distance uses bucket buckets/2, and bucket `buckets` is extra. All of
// this is computed once for all layers. Tables and matrices start as N(0, initializer_range^2), biases as 0. A position
// beyond the table is an error.
constexpr double kLayerNormEps = 1e-5;  // as in the paper's code

class Tupe : public Encoding {
 public:
  enum class Bias { kNone, kRelative };

  Tupe(Bias bias, io::StrictObject& options, const EncodingShape& shape)
      : name_(options.path()), positions_(read_table_positions(options, shape.max_position_embeddings)), shape_(shape) {
    if (bias == Bias::kRelative) buckets_ = relative_buckets(options, BucketDirections::kBoth);
    const int64_t width = shape.hidden_size, all_heads = shape.heads * shape.head_dim;
    table_PC_ = register_parameter("pos", drawn({positions_ + 1, width}, shape));
    norm_weight_C_ = register_parameter("pos_ln_weight", at::ones({width}));
    norm_bias_C_ = register_parameter("pos_ln_bias", at::zeros({width}));
    query_weight_ = register_parameter("pos_q_weight", drawn({all_heads, width}, shape));
    query_bias_ = register_parameter("pos_q_bias", at::zeros({all_heads}));
    key_weight_ = register_parameter("pos_k_weight", drawn({all_heads, width}, shape));
    key_bias_ = register_parameter("pos_k_bias", at::zeros({all_heads}));
    if (bias == Bias::kNone) return;
    bias_BH_ = register_parameter("relative_attention_bias", drawn({buckets_.count + 1, shape.heads}, shape));
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    const int64_t last = checked_last(positions);
    const at::Tensor table_PC = at::layer_norm(table_PC_->narrow(0, 0, last + 2), table_PC_->size(1), norm_weight_C_,
                                               norm_bias_C_, kLayerNormEps);
    const auto heads_of = [&](const at::Tensor& weight, const at::Tensor& bias) {
      return projected_rows(table_PC, weight, bias, shape_);
    };
    const at::Tensor query_HPD = heads_of(query_weight_, query_bias_), key_HPD = heads_of(key_weight_, key_bias_);

    Terms terms;
    const double scale = 1 / std::sqrt(2.0 * static_cast<double>(shape_.head_dim));
    terms.scale = scale;
    terms.position_query = query_HPD.narrow(1, 1, last + 1);
    terms.position_key = key_HPD.narrow(1, 1, last + 1);
    const at::Tensor reset_H2 = (query_HPD.narrow(1, 0, 2) * key_HPD.narrow(1, 0, 2)).sum(-1) * scale;
    terms.reset_row = reset_H2.select(1, 0);
    terms.reset_col = reset_H2.select(1, 1);
    if (bias_BH_->defined()) {
      const DistanceTable& distances = buckets_.distances;
      terms.bias = {bias_BH_->t().index_select(1, distances.rows), distances.lo, distances.hi};
      terms.reset_row = terms.reset_row + bias_BH_->select(0, buckets_.count / 2);
      terms.reset_col = terms.reset_col + bias_BH_->select(0, buckets_.count);
    }
    return {.terms = terms};
  }

  void check_length(int64_t tokens) const override { checked_last(ends_of_sequence(tokens)); }
  int64_t last_new_length() const override { return positions_; }

 private:
  // The highest position of both sides, or 0 without positions.
  int64_t checked_last(const Positions& positions) const {
    int64_t last = 0;
    for (const TokenPositions* side : {&positions.query, &positions.key}) {
      if (side->ids.numel() == 0) continue;
      const int64_t low = side->ids.min().item<int64_t>(), high = side->ids.max().item<int64_t>();
      if (low < 0 || high >= positions_) {
        fail(name_, "positions must be in 0..{}, the rows of the table (max_position_embeddings), got {}",
             positions_ - 1, low < 0 ? low : high);
      }
      last = std::max(last, high);
    }
    return last;
  }

  std::string name_;  // for messages
  int64_t positions_;
  EncodingShape shape_;
  Parameter table_PC_, norm_weight_C_, norm_bias_C_;
  Parameter query_weight_, query_bias_, key_weight_, key_bias_;  // U_Q, U_K [H*D, C] and their biases
  RelativeBuckets buckets_;
  Parameter bias_BH_;  // [buckets + 1, H]
};

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
// All layers share P [2k, C]. Each layer has W_kr and W_qr [H*D, C], with biases; with "share_att_key" they are its W_k
// and W_q. P and the matrices start as N(0, initializer_range^2), biases as 0.
//
// deberta-literal is Eq. 10 as printed: both terms, P through W_k and W_q (without their biases, which k and q already
// contain), s = 1/sqrt(D).
//
// Not implemented: a layer norm of P ("norm_rel_ebd"), and absolute positions before the last layers (EMD).
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
    if (projection_ != Projection::kOwn) return;
    const int64_t all_heads = shape.heads * shape.head_dim;
    const auto weight = [&] { return drawn({all_heads, shape.hidden_size}, shape); };
    const auto bias = [&] { return at::zeros({all_heads}); };
    if (content_to_position_) {
      key_weights_ = layer_parameters(*this, shape.layers, "pos_key_proj_weight", weight);
      key_biases_ = layer_parameters(*this, shape.layers, "pos_key_proj_bias", bias);
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
    return {.terms = {.scale = scale_}, .table = {table_RC_->narrow(0, first, count).unsqueeze(0), lo, hi}};
  }

  void check_length(int64_t tokens) const override { distance_range(ends_of_sequence(tokens), -delta_.lo); }
  int64_t last_new_length() const override { return 1 - delta_.lo; }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    Terms terms = shared.terms;
    const DistanceTable& table = shared.table;
    const auto rows = [&](const auto& weights, const auto& biases, const at::Tensor& weight, const at::Tensor& bias) {
      if (projection_ == Projection::kOwn) return by_distance(table, weights.at(layer), biases.at(layer));
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
    return rows_HRD.index_select(1, reached - reached[0]);
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
    const int64_t buckets = options.integer(kBuckets, -1, -1, 1024);
    if (buckets < 0) {
      table_rows_ = 2 * k;
      delta_ = {.rows = {}, .lo = -k, .hi = k - 1};
      return;
    }
    if (buckets < 4 || buckets % 2 != 0) {
      fail("position_encoding", "{} must be -1 (none) or an even number from 4 to 1024, got {}",
           options.path_of(kBuckets), buckets);
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
  int64_t table_rows_ = 0;                               // of P
  DistanceTable delta_;                                  // without rows, distance d is in row d - lo
  std::optional<double> scale_;                          // absent: 1/sqrt(D)
  Parameter table_RC_;                                   // P
  std::vector<Parameter> key_weights_, key_biases_;      // W_kr of each layer
  std::vector<Parameter> query_weights_, query_biases_;  // W_qr
};

}  // namespace

EncodingEntry t5() {
  return {.info = {.name = "t5",
                   .summary = "a trained bias for each head and bucket of distances",
                   .equation = "score = q.k + b[bucket(r)]",
                   .source = "Raffel et al. 2020, arXiv 1910.10683; arXiv 2104.09864 Eq. 8",
                   .terms = "b, s",
                   .parameters = "buckets * H",
                   .cost = "T * S * H additions",
                   .extrapolates = "yes, far distances share a bucket",
                   .keys = {"relative_attention_num_buckets = 32", "relative_attention_max_distance = 128",
                            "scale = \"none\" (or \"sqrt\")"}},
          .make = construct<T5>};
}

EncodingEntry tupe_a() {
  return {.info = {.name = "tupe-a",
                   .summary = "positions attend to positions by projections of their own; [CLS] untied",
                   .equation = "score = s q.k + reset(s a[m].c[n]), s = 1/sqrt(2D)",
                   .source = "Ke et al. 2020, arXiv 2006.15595; arXiv 2104.09864 Eq. 9",
                   .terms = "a, c, row, col, s",
                   .parameters = "(positions + 1) * C + 2 (C + 1) * H * D + 2 C",
                   .cost = "T * S * H * D multiply-adds",
                   .extrapolates = "no, error beyond the table",
                   .keys = {"max_position_embeddings = that of the model"},
                   .invariance = EncodingInfo::Invariance::kNone},
          .make = construct<Tupe, Tupe::Bias::kNone>};
}

EncodingEntry tupe_r() {
  EncodingInfo info = tupe_a().info;
  info.name = "tupe-r";
  info.summary = "tupe-a and a trained bias for each head and bucket of distances";
  info.equation = "score = s q.k + reset(s a[m].c[n] + b[bucket(r)]), s = 1/sqrt(2D)";
  info.terms = "a, c, b, row, col, s";
  info.parameters += " + (buckets + 1) * H";
  info.keys.insert(info.keys.end(), {"relative_attention_num_buckets = 32", "relative_attention_max_distance = 128"});
  return {.info = info, .make = construct<Tupe, Tupe::Bias::kRelative>};
}

EncodingEntry deberta() {
  return {
      .info = {.name = "deberta",
               .summary = "content-to-position and position-to-content scores, through projections of their own",
               .equation = "score = s [q.k + q.(W_kr P[r]) + k.(W_qr P[r])], s = 1/sqrt(3D)",
               .source = "He et al. 2020, arXiv 2006.03654; arXiv 2104.09864 Eq. 10",
               .terms = "K, Q, s",
               .parameters = "2k * C + 2 L * (C + 1) * H * D, k = max_relative_positions or position_buckets; "
                             "2k * C with share_att_key",
               .cost = "(T + S) * N * H * D multiply-adds, N = min(T + S, 2 max_relative_positions), and at most "
                       "4k * C * H * D for the tables",
               .extrapolates = "yes, far distances share a row",
               .keys = {"max_relative_positions = -1 (max_position_embeddings)", "position_buckets = -1 (none)",
                        "pos_att_type = [\"c2p\", \"p2c\"]", "share_att_key = false", "p2c = \"code\" (or \"paper\")"}},
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
