// Linear attention (rf/nn/linear_attention.h): rotation, features and sums put together, packed rows sequence by
// sequence, and the layer with its random vectors. Numerator and denominator are the same sum, the denominator with
// values of 1, so that what may differ between them, the rotation, is seen in one place.
#include "rf/nn/linear_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "attention_paths.h"
#include "feature_map.h"
#include "linear_sums.h"
#include "rf/io/error.h"
#include "rf/ops/ops.h"

namespace rf::nn {

namespace {

using ops::Rotation;
using ops::Terms;

constexpr const char* kWhere = "linear_attention";

void check_terms(const Terms& terms, const LinearAttentionConfig& config) {
  std::vector<const char*> refused;
  const auto refuse = [&](bool set, const char* name) {
    if (set) refused.push_back(name);
  };
  refuse(terms.content_bias_HD.defined(), "u");
  refuse(terms.position_bias_HD.defined(), "w");
  refuse(terms.key_table.defined(), "K");
  refuse(terms.query_table.defined(), "Q");
  refuse(terms.value_table.defined(), "V");
  refuse(terms.bias.defined(), "b");
  refuse(terms.gate.defined(), "G");
  refuse(terms.position_query_HPD.defined(), "a");
  refuse(terms.position_key_HPD.defined(), "c");
  refuse(terms.reset_row_H.defined(), "row");
  refuse(terms.reset_col_H.defined(), "col");
  if (!refused.empty()) {
    fail(kWhere, "terms must be rotations, as there is no place for pairwise terms, got {}", fmt::join(refused, ", "));
  }
  if (terms.value.defined()) fail(kWhere, "values must not be rotated, got a rotation of {}", "values");
  const bool rotates = terms.query.defined() || terms.key.defined();
  if (rotates && config.rope_site == RopeSite::kNone) {
    fail(kWhere, "rope_site must be after_map or before_map where the terms rotate, got {}", "none");
  }
}

void check_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  for (const auto& [x, name] : {std::pair(&q, "q"), {&k, "k"}, {&v, "v"}}) {
    if (x->dim() != 4) fail(kWhere, "{} must be [batch, tokens, heads, head_dim], got {} dimensions", name, x->dim());
    const at::ScalarType dtype = x->scalar_type();
    if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16) {
      fail(kWhere, "{} must be float32, float64 or bfloat16, got {}", name, toString(dtype));
    }
    if (x->size(3) == 0) fail(kWhere, "{} must have a head_dim of at least 1, got 0", name);
    if (dtype != q.scalar_type()) {
      fail(kWhere, "{} must have the dtype of q, {}, got {}", name, toString(q.scalar_type()), toString(dtype));
    }
  }
  const bool agree = q.size(0) == k.size(0) && q.size(0) == v.size(0) && k.size(1) == v.size(1) &&
                     k.size(2) == v.size(2) && q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0;
  if (!agree) {
    fail(kWhere, "q, k and v must agree in batch, keys, heads and head_dim, got [{}], [{}] and [{}]",
         fmt::join(q.sizes(), ", "), fmt::join(k.sizes(), ", "), fmt::join(v.sizes(), ", "));
  }
}

void check_row(const at::Tensor& x, const char* name, const at::Tensor& k_BSHD) {
  const bool one_row_fits = x.dim() == 2 && (x.size(0) == 1 || x.size(0) == k_BSHD.size(0));
  if (one_row_fits && x.size(1) == k_BSHD.size(1)) return;
  fail(kWhere, "{} must be [1 or {}, {}], got [{}]", name, k_BSHD.size(0), k_BSHD.size(1), fmt::join(x.sizes(), ", "));
}

void check_call(const at::Tensor& q, const at::Tensor& k, const LinearAttentionConfig& config,
                const at::Tensor& projection, const LinearAttentionCall& call) {
  const bool causal = call.direction == Direction::kCausal;
  if (config.feature_map == FeatureMap::kShenOriginal && causal) {
    fail(kWhere, "feature_map must not be shen_original in causal attention, got {}", "shen_original");
  }
  if (config.draws() != projection.defined()) {
    fail(kWhere, "projection must be given with feature_map favor and relu, and only there, got {}",
         projection.defined() ? "one" : "none");
  }
  if (projection.defined() && (projection.dim() != 2 || projection.size(1) != q.size(3) || projection.size(0) < 1)) {
    fail(kWhere, "projection must be [features, {}], got [{}]", q.size(3), fmt::join(projection.sizes(), ", "));
  }
  if (call.key_mask_BS.defined()) {
    check_row(call.key_mask_BS, "key_mask", k);
    if (call.key_mask_BS.scalar_type() != at::kBool) {
      fail(kWhere, "key_mask must be bool, got {}", toString(call.key_mask_BS.scalar_type()));
    }
  }
  if (call.sequences_BS.defined()) {
    check_row(call.sequences_BS, "sequences", k);
    if (!at::isIntegralType(call.sequences_BS.scalar_type(), false)) {
      fail(kWhere, "sequences must be integers, got {}", toString(call.sequences_BS.scalar_type()));
    }
    if (q.size(1) > k.size(1)) {
      fail(kWhere, "packed queries must be the last keys of their rows, got {} queries and {} keys", q.size(1),
           k.size(1));
    }
  }
  if (call.state != nullptr && (!causal || call.sequences_BS.defined() || q.size(1) != k.size(1))) {
    fail(kWhere, "a state needs causal attention with as many queries as keys and no packing, got {}",
         !causal ? "bidirectional attention"
                 : fmt::format("{} queries and {} keys{}", q.size(1), k.size(1),
                               call.sequences_BS.defined() ? ", packed" : ""));
  }
}

void check_rotation(const Rotation& rotation, const char* name, const at::Tensor& x_BTHD) {
  if (!rotation.defined()) return;
  const at::IntArrayRef shape = rotation.cos.sizes();
  const bool fits = shape.size() == 3 && rotation.sin.sizes() == shape && shape[1] == x_BTHD.size(1) &&
                    (shape[0] == 1 || shape[0] == x_BTHD.size(0));
  if (fits) return;
  fail(kWhere, "cos and sin of {} must be [1 or {}, {}, pairs], got [{}] and [{}]", name, x_BTHD.size(0),
       x_BTHD.size(1), fmt::join(shape, ", "), fmt::join(rotation.sin.sizes(), ", "));
}

at::Tensor turned(const at::Tensor& x_BTHF, const Rotation& rotation, const std::string& layout) {
  if (rotation.defined() && 2 * rotation.cos.size(-1) > x_BTHF.size(-1)) {
    fail(kWhere, "rotations must turn at most the {} elements there are (rope_site), got {}", x_BTHF.size(-1),
         2 * rotation.cos.size(-1));
  }
  return rotated(x_BTHF, rotation, layout);
}

// [B,S,Hk,D] to [B,S,H,D].
at::Tensor for_query_heads(const at::Tensor& x_BSHD, int64_t heads) {
  const int64_t group = heads / x_BSHD.size(2);
  return group == 1 ? x_BSHD : x_BSHD.repeat_interleave(group, 2);
}

at::Tensor heads_first(const at::Tensor& x_BTHD) {
  return x_BTHD.transpose(1, 2);
}

// A state is that of calls with the same heads, features and values.
void check_state(const LinearAttentionState& state, const SumInput& in) {
  if (in.k_BHSF.size(2) == 0) return;
  const at::ScalarType dtype = in.q_BHTF.scalar_type();
  const int64_t batch = in.q_BHTF.size(0), heads = in.q_BHTF.size(1), features = in.q_BHTF.size(3);
  const auto check = [&](const at::Tensor& given, const char* name, bool wanted, const std::vector<int64_t>& shape) {
    if (given.defined() != wanted) {
      fail(kWhere, "a state must come from calls with the same feature_map, got one with{} {}", wanted ? "out" : "",
           name);
    }
    if (wanted && (given.sizes() != shape || given.scalar_type() != dtype)) {
      fail(kWhere, "{} of the state must be {} [{}], got {} [{}]", name, toString(dtype), fmt::join(shape, ", "),
           toString(given.scalar_type()), fmt::join(given.sizes(), ", "));
    }
  };
  const bool begun = state.sum_BHFD.defined();
  check(state.sum_BHFD, "sum", begun, {batch, heads, features, in.v_BHSD.size(3)});
  check(state.norm_BHF1, "norm", begun, {batch, heads, features, 1});
  check(state.maximum_BH, "maximum", begun && in.maximum_BHS.defined(), {batch, heads});
}

// num / den, 0 with gradient 0 where den is 0.
at::Tensor quotient(const at::Tensor& num_BHTD, const at::Tensor& den_BHT1) {
  const at::Tensor empty = den_BHT1.eq(0);
  return (num_BHTD / den_BHT1.masked_fill(empty, 1)).masked_fill(empty, 0);
}

// One sequence a row, everything in one dtype.
at::Tensor attend(at::Tensor q_BTHD, at::Tensor k_BSHD, const at::Tensor& v_BSHD, const Terms& terms,
                  const LinearAttentionConfig& config, const at::Tensor& projection, const LinearAttentionCall& call) {
  if (config.rope_site == RopeSite::kBeforeMap) {
    q_BTHD = turned(q_BTHD, terms.query, terms.layout);
    k_BSHD = turned(k_BSHD, terms.key, terms.layout);
  }
  LinearAttentionState none;
  LinearAttentionState& state = call.state != nullptr ? *call.state : none;
  const double scale = terms.scale.value_or(1 / std::sqrt(static_cast<double>(q_BTHD.size(3))));
  const at::Tensor f_BTHF = query_features(config, {q_BTHD, projection, scale});
  const KeyFeatures keys =
      key_features(config, {k_BSHD, projection, scale}, call.key_mask_BS, call.direction, state.maximum_BH);
  at::Tensor turned_f_BTHF = f_BTHF, turned_g_BSHF = keys.rows_BSHF;
  if (config.rope_site == RopeSite::kAfterMap) {
    turned_f_BTHF = turned(f_BTHF, terms.query, terms.layout);
    turned_g_BSHF = turned(keys.rows_BSHF, terms.key, terms.layout);
  }
  SumInput over{heads_first(turned_f_BTHF), heads_first(turned_g_BSHF), heads_first(v_BSHD),
                keys.maximum_BSH.defined() ? heads_first(keys.maximum_BSH) : at::Tensor()};
  SumInput under = over;
  under.v_BHSD = at::ones_like(over.v_BHSD.narrow(3, 0, 1));
  if (!config.rotate_denominator) {
    under.q_BHTF = heads_first(f_BTHF);
    under.k_BHSF = heads_first(keys.rows_BSHF);
  }
  at::Tensor num_BHTD, den_BHT1;
  if (call.direction == Direction::kCausal) {
    check_state(state, over);
    num_BHTD = causal_sum(over, state.sum_BHFD, state.maximum_BH);
    den_BHT1 = causal_sum(under, state.norm_BHF1, state.maximum_BH);
    if (over.maximum_BHS.defined() && over.maximum_BHS.size(2) > 0) state.maximum_BH = over.maximum_BHS.select(2, -1);
  } else {
    num_BHTD = sum_over_keys(over);
    den_BHT1 = sum_over_keys(under);
  }
  if (config.eps > 0) den_BHT1 = den_BHT1 + config.eps;
  return heads_first(quotient(num_BHTD, den_BHT1));
}

// Which tokens of a batch of rows, counted through all rows, belong to each sequence: one after the other, and how
// many.
struct Grouping {
  std::vector<int64_t> queries, keys, query_counts, key_counts;
};
Grouping group(const at::Tensor& sequences_BS, int64_t queries) {
  const int64_t keys = sequences_BS.size(1), skipped = keys - queries;
  const auto ids = sequences_BS.accessor<int64_t, 2>();
  Grouping grouping;
  for (int64_t row = 0; row < sequences_BS.size(0); ++row) {
    std::map<int64_t, std::vector<int64_t>> members;
    for (int64_t key = 0; key < keys; ++key) {
      if (ids[row][key] >= 0) members[ids[row][key]].push_back(key);
    }
    for (const auto& [id, tokens] : members) {
      const size_t before = grouping.queries.size();
      for (const int64_t token : tokens) {
        grouping.keys.push_back(row * keys + token);
        if (token >= skipped) grouping.queries.push_back(row * queries + token - skipped);
      }
      grouping.key_counts.push_back(static_cast<int64_t>(tokens.size()));
      grouping.query_counts.push_back(static_cast<int64_t>(grouping.queries.size() - before));
    }
  }
  return grouping;
}

// Tokens of all rows, taken apart into sequences [1,tokens,..]; undefined ones for an undefined x.
std::vector<at::Tensor> apart(const at::Tensor& x, int64_t batch, const std::vector<int64_t>& tokens,
                              const std::vector<int64_t>& counts) {
  if (!x.defined()) return std::vector<at::Tensor>(counts.size());
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = batch;
  return x.expand(shape)
      .flatten(0, 1)
      .index_select(0, at::tensor(tokens, at::kLong))
      .unsqueeze(0)
      .split_with_sizes(counts, 1);
}

// Rows that hold several sequences: each alone, and back to its place.
at::Tensor attend_packed(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                         const Terms& terms, const LinearAttentionConfig& config, const at::Tensor& projection,
                         const LinearAttentionCall& call) {
  const int64_t batch = q_BTHD.size(0), queries = q_BTHD.size(1);
  const Grouping grouping = group(call.sequences_BS.to(at::kLong).expand({batch, k_BSHD.size(1)}), queries);
  const auto of_queries = [&](const at::Tensor& x) { return apart(x, batch, grouping.queries, grouping.query_counts); };
  const auto of_keys = [&](const at::Tensor& x) { return apart(x, batch, grouping.keys, grouping.key_counts); };
  const auto q = of_queries(q_BTHD), k = of_keys(k_BSHD), v = of_keys(v_BSHD), mask = of_keys(call.key_mask_BS);
  const auto query_cos = of_queries(terms.query.cos), query_sin = of_queries(terms.query.sin);
  const auto key_cos = of_keys(terms.key.cos), key_sin = of_keys(terms.key.sin);

  // Token 0 of the outputs is for padding.
  std::vector<at::Tensor> outputs{at::zeros({1, 1, q_BTHD.size(2), v_BSHD.size(3)}, q_BTHD.options())};
  for (size_t i = 0; i < q.size(); ++i) {
    Terms own;
    own.query = {query_cos[i], query_sin[i]};
    own.key = {key_cos[i], key_sin[i]};
    own.layout = terms.layout;
    own.scale = terms.scale;
    outputs.push_back(
        attend(q[i], k[i], v[i], own, config, projection, {.direction = call.direction, .key_mask_BS = mask[i]}));
  }
  std::vector<int64_t> place(static_cast<size_t>(batch * queries), 0);
  for (size_t i = 0; i < grouping.queries.size(); ++i) {
    place[static_cast<size_t>(grouping.queries[i])] = static_cast<int64_t>(i) + 1;
  }
  return at::cat(outputs, 1).index_select(1, at::tensor(place, at::kLong)).unflatten(1, {batch, queries}).squeeze(0);
}

}  // namespace

at::Tensor linear_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                            const Terms& terms, const LinearAttentionConfig& config, const at::Tensor& projection,
                            const LinearAttentionCall& call) {
  check_terms(terms, config);
  check_shapes(q_BTHD, k_BSHD, v_BSHD);
  check_call(q_BTHD, k_BSHD, config, projection, call);
  check_rotation(terms.query, "queries", q_BTHD);
  check_rotation(terms.key, "keys", k_BSHD);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);  // long sums of 16 bits stall
  const at::ScalarType dtype = ops::row_dtype(q_BTHD.scalar_type());
  const at::Tensor q = q_BTHD.to(dtype), k = for_query_heads(k_BSHD.to(dtype), q.size(2)),
                   v = for_query_heads(v_BSHD.to(dtype), q.size(2));
  const at::Tensor vectors = projection.defined() ? projection.to(dtype) : projection;
  const bool packed = call.sequences_BS.defined() && q.size(0) > 0;
  const at::Tensor out =
      packed ? attend_packed(q, k, v, terms, config, vectors, call) : attend(q, k, v, terms, config, vectors, call);
  return out.to(q_BTHD.scalar_type());
}

LinearAttention::LinearAttention(const LinearAttentionConfig& config, int64_t head_dim, int64_t layer)
    : config_(config), layer_(layer) {
  if (!config_.draws()) return;
  const FeatureDraw first{config_.orthogonal, config_.orthogonal_scaling, config_.seed, layer_, 0};
  projection_ =
      register_buffer("projection", draw_features(num_features(config_, head_dim), head_dim, first).to(at::kFloat));
  redraws_ = register_buffer("redraws", at::zeros({1}, at::kLong));
  calls_ = register_buffer("calls", at::zeros({1}, at::kLong));
}

void LinearAttention::count_call() {
  const int64_t calls = calls_.item<int64_t>();
  if (calls > 0 && config_.redraw_every > 0 && calls % config_.redraw_every == 0) {
    redraws_.add_(1);
    const FeatureDraw next{config_.orthogonal, config_.orthogonal_scaling, config_.seed, layer_,
                           redraws_.item<int64_t>()};
    projection_.copy_(draw_features(projection_.size(0), projection_.size(1), next));
  }
  calls_.add_(1);
}

at::Tensor LinearAttention::forward(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                                    const Terms& terms, const LinearAttentionCall& call) {
  if (config_.draws() && is_training()) count_call();
  // A copy: the next redraw overwrites the vectors, and the backward of this call may come after it.
  const at::Tensor vectors = config_.draws() ? projection_.clone() : projection_;
  return linear_attention(q_BTHD, k_BSHD, v_BSHD, terms, config_, vectors, call);
}

}  // namespace rf::nn
