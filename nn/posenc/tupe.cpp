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
#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "distance_buckets.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

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
      terms.bias = {bias_BH_->t().index_select(1, on_device(distances.rows, bias_BH_->device())), distances.lo,
                    distances.hi};
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

}  // namespace

EncodingEntry tupe_a() {
  return {.info = {.name = "tupe-a",
                   .summary = "position-to-position scores with separate projections; [CLS] untied",
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

}  // namespace rf::nn::posenc
