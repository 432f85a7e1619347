// Linear attention by torch operations (linear_attention_paths.h). It supports derivatives of any order, also through a
// state, the running maxima of causal shen and favor, and float64. Numerator and denominator use the same sum; the
// denominator's values are 1. Only the rotation may differ, which one place decides.
//
// Sums over keys add g(k) v^T before a query multiplies them, so no tensor has T x S elements. Causal sums process
// kChunk queries and keys at a time. Keys inside the chunk contribute through the products of all its pairs. Earlier
// keys contribute through their sum S = sum_n k_n v_n^T, which each chunk passes to the next.
//
//     keys   ......S......|  chunk  |
//     out_m = q_m . S e^{M0 - M_m} + sum over the chunk's keys n <= m of (q_m . k_n) e^{M_n - M_m} v_n
//
// M_n: the running maximum at key n, M0 the maximum at the end of the previous chunk; exponents are never positive.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "attention_state.h"
#include "linear_attention_paths.h"

namespace rf::nn {

namespace {

struct SumInput {
  at::Tensor q_BHTF, k_BHSF, v_BHSD;
  at::Tensor maximum_BHS;  // causal only; undefined means 0. The true k of key n is k times the exponential of this,
                           // which never decreases with n
};

constexpr int64_t kChunk = 128;  // about F and D, so that both ways to sum have about the same cost

class PrefixSum {
 public:
  PrefixSum(at::Tensor sum_BHFD, const at::Tensor& maximum_BH) : sum_BHFD_(std::move(sum_BHFD)) {
    if (maximum_BH.defined()) maximum_BH1_ = maximum_BH.unsqueeze(-1);
  }

  void add(const SumInput& keys) {
    if (keys.k_BHSF.size(2) == 0) return;
    at::Tensor k_BHSF = keys.k_BHSF;
    if (keys.maximum_BHS.defined()) {
      const at::Tensor last_BH1 = keys.maximum_BHS.narrow(-1, keys.maximum_BHS.size(-1) - 1, 1);
      k_BHSF = k_BHSF * (keys.maximum_BHS - last_BH1).exp().unsqueeze(-1);
      if (sum_BHFD_.defined() && maximum_BH1_.defined()) {
        sum_BHFD_ = sum_BHFD_ * (maximum_BH1_ - last_BH1).exp().unsqueeze(-1);
      }
      maximum_BH1_ = last_BH1;
    }
    const at::Tensor added = at::matmul(k_BHSF.transpose(2, 3), keys.v_BHSD);
    sum_BHFD_ = sum_BHFD_.defined() ? sum_BHFD_ + added : added;
  }

  // Equal numbers of queries and keys; the keys are not added.
  at::Tensor answer(const SumInput& chunk) const {
    const int64_t tokens = chunk.q_BHTF.size(2);
    const at::Tensor later = at::ones({tokens, tokens}, chunk.q_BHTF.options().dtype(at::kBool)).triu_(1);
    at::Tensor weights_BHTS = at::matmul(chunk.q_BHTF, chunk.k_BHSF.transpose(2, 3));
    const at::Tensor& maximum = chunk.maximum_BHS;
    if (maximum.defined()) {
      const at::Tensor gap_BHTS = maximum.unsqueeze(-2) - maximum.unsqueeze(-1);
      weights_BHTS = weights_BHTS * gap_BHTS.masked_fill(later, -std::numeric_limits<double>::infinity()).exp();
    } else {
      weights_BHTS = weights_BHTS.masked_fill(later, 0);
    }
    const at::Tensor within_BHTD = at::matmul(weights_BHTS, chunk.v_BHSD);
    if (!sum_BHFD_.defined()) return within_BHTD;
    at::Tensor before_BHTD = at::matmul(chunk.q_BHTF, sum_BHFD_);
    if (maximum.defined()) before_BHTD = before_BHTD * (maximum_BH1_ - maximum).exp().unsqueeze(-1);
    return within_BHTD + before_BHTD;
  }

  const at::Tensor& sum() const { return sum_BHFD_; }

 private:
  at::Tensor sum_BHFD_;     // of the keys so far, divided by the exponential of
  at::Tensor maximum_BH1_;  // their maximum
};

// Splits tokens with one operation per tensor: with one narrow per chunk, each backward would fill a gradient of T
// tokens.
std::vector<SumInput> split(const SumInput& in, const std::vector<int64_t>& queries, const std::vector<int64_t>& keys) {
  const std::vector<at::Tensor> q = in.q_BHTF.split_with_sizes(queries, 2), k = in.k_BHSF.split_with_sizes(keys, 2),
                                v = in.v_BHSD.split_with_sizes(keys, 2);
  std::vector<at::Tensor> maxima(keys.size());
  if (in.maximum_BHS.defined()) maxima = in.maximum_BHS.split_with_sizes(keys, 2);
  std::vector<SumInput> parts;
  for (size_t i = 0; i < keys.size(); ++i) parts.push_back({q[i], k[i], v[i], maxima[i]});
  return parts;
}

// out_m = q_m . sum_n k_n v_n^T over all keys.
at::Tensor sum_over_keys(const SumInput& in) {
  return at::matmul(in.q_BHTF, at::matmul(in.k_BHSF.transpose(2, 3), in.v_BHSD));
}

// Same over the keys up to m + S - T, times the exponential of minus the maximum at the last such key (0 for a query
// without keys). sum_BHFD, maximum_BH: of the earlier keys, undefined without earlier keys; sum_BHFD becomes the sum
// over all keys.
at::Tensor causal_sum(const SumInput& in, at::Tensor& sum_BHFD, const at::Tensor& maximum_BH) {
  const int64_t queries = in.q_BHTF.size(2), keys = in.k_BHSF.size(2), paired = std::min(queries, keys);
  std::vector<int64_t> chunks;
  for (int64_t first = 0; first < paired; first += kChunk) chunks.push_back(std::min(kChunk, paired - first));
  std::vector<int64_t> query_parts{queries - paired}, key_parts{keys - paired};
  query_parts.insert(query_parts.end(), chunks.begin(), chunks.end());
  key_parts.insert(key_parts.end(), chunks.begin(), chunks.end());
  const std::vector<SumInput> parts = split(in, query_parts, key_parts);

  // The first part: queries before every key, or keys before every query.
  const at::IntArrayRef shape = parts[0].q_BHTF.sizes();
  std::vector<at::Tensor> out_BHTD{at::zeros({shape[0], shape[1], shape[2], in.v_BHSD.size(3)}, in.q_BHTF.options())};
  PrefixSum prefix(sum_BHFD, maximum_BH);
  prefix.add(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    out_BHTD.push_back(prefix.answer(parts[i]));
    prefix.add(parts[i]);
  }
  sum_BHFD = prefix.sum();
  return at::cat(out_BHTD, 2);
}

at::Tensor rotated_features(const at::Tensor& features, const Rotation& rotation, const std::string& layout) {
  check_rotated_size(features, rotation);
  return rotated(features, rotation, layout);
}

at::Tensor heads_first(const at::Tensor& x_BTHD) { return x_BTHD.transpose(1, 2); }

// num / den, 0 with gradient 0 where den is 0.
at::Tensor quotient(const at::Tensor& num_BHTD, const at::Tensor& den_BHT1) {
  const at::Tensor empty = den_BHT1.eq(0);
  return (num_BHTD / den_BHT1.masked_fill(empty, 1)).masked_fill(empty, 0);
}

// In the dtype of the sums that follow.
void make_ready(LinearAttentionState& state, const SumInput& in) {
  if (in.k_BHSF.size(2) == 0) return;
  const at::ScalarType dtype = in.q_BHTF.scalar_type();
  check_state(state, dtype, {in.q_BHTF.size(0), in.q_BHTF.size(1), in.q_BHTF.size(3), in.v_BHSD.size(3)},
              in.maximum_BHS.defined());
  for (at::Tensor* x : {&state.sum_BHFD, &state.norm_BHF1, &state.maximum_BH}) {
    if (x->defined()) *x = x->to(dtype);
  }
}

}  // namespace

at::Tensor explicit_linear_attention(const LinearProblem& given) {
  const LinearAttentionConfig& config = given.config;
  LinearProblem problem = before_map(given, ops::row_dtype(given.q_BTHD.scalar_type()));
  const int64_t heads = problem.q_BTHD.size(2);
  problem.k_BSHD = for_query_heads(problem.k_BSHD, heads);
  problem.v_BSHD = for_query_heads(problem.v_BSHD, heads);
  LinearAttentionState none;
  LinearAttentionState& state = problem.call.state != nullptr ? *problem.call.state : none;
  const auto [f_BTHF, g_BSHF, maximum_BSH] = features_of(problem);
  at::Tensor rotated_f_BTHF = f_BTHF, rotated_g_BSHF = g_BSHF;
  if (config.rope_site == RopeSite::kAfterMap) {
    rotated_f_BTHF = rotated_features(f_BTHF, problem.terms.query, problem.terms.layout);
    Rotation key = problem.terms.key;
    if (key.defined() && key.cos.dim() == 4 && key.cos.size(2) > 1) {  // of the keys' heads
      key = {for_query_heads(key.cos, heads), for_query_heads(key.sin, heads)};
    }
    rotated_g_BSHF = rotated_features(g_BSHF, key, problem.terms.layout);
  }
  SumInput over{heads_first(rotated_f_BTHF), heads_first(rotated_g_BSHF), heads_first(problem.v_BSHD),
                maximum_BSH.defined() ? heads_first(maximum_BSH) : at::Tensor()};
  SumInput under = over;
  under.v_BHSD = at::ones_like(over.v_BHSD.narrow(3, 0, 1));
  if (!config.rotate_denominator) {
    under.q_BHTF = heads_first(f_BTHF);
    under.k_BHSF = heads_first(g_BSHF);
  }
  at::Tensor num_BHTD, den_BHT1;
  if (problem.call.direction == Direction::kCausal) {
    make_ready(state, over);
    num_BHTD = causal_sum(over, state.sum_BHFD, state.maximum_BH);
    den_BHT1 = causal_sum(under, state.norm_BHF1, state.maximum_BH);
    if (over.maximum_BHS.defined() && over.maximum_BHS.size(2) > 0) state.maximum_BH = over.maximum_BHS.select(2, -1);
  } else {
    num_BHTD = sum_over_keys(over);
    den_BHT1 = sum_over_keys(under);
  }
  if (config.eps > 0) den_BHT1 = den_BHT1 + config.eps;
  return heads_first(quotient(num_BHTD, den_BHT1)).to(given.q_BTHD.scalar_type());
}

}  // namespace rf::nn
