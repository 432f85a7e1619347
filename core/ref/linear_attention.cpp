// Linear attention in float64 loops (see the header). With w_mn = (R f_m) . (R g_n), s_mn the part of the denominator
// from f_m and g_n, y the gradient of out and d the denominator:
//
//   out_m = sum_n w_mn v_n / d_m                        c_m = -(y_m . out_m) / d_m
//   dv_n  = sum_m w_mn y_m / d_m      dw_mn = y_m . v_n / d_m      ds_mn = c_m
//
// and both w_mn and s_mn times e^(c_n - c_m') with exponents.
#include "common/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "convert.h"
#include "linear_attention/problem.h"

namespace rf::ref {
namespace {

using core::Sequence;
using core::sequence_of;
using Rows = std::vector<std::vector<double>>;

Rows load_rows(rf_dtype dtype, const void* data, int64_t offset, int64_t stride, int64_t tokens, int64_t width) {
  Rows rows(static_cast<size_t>(tokens), std::vector<double>(static_cast<size_t>(width)));
  for (size_t t = 0; t < rows.size(); ++t) {
    for (size_t i = 0; i < rows[t].size(); ++i) {
      rows[t][i] = load(dtype, data, offset + static_cast<int64_t>(t) * stride + static_cast<int64_t>(i));
    }
  }
  return rows;
}

double mapped(rf_feature_map map, double x) {
  switch (map) {
    case RF_FEATURES_GIVEN: return x;
    case RF_FEATURES_ELU_PLUS_ONE: return x > 0 ? x + 1 : std::exp(x);
    case RF_FEATURES_RELU: return std::max(x, 0.0);
  }
  return x;
}

double slope(rf_feature_map map, double x) {
  switch (map) {
    case RF_FEATURES_GIVEN: return 1;
    case RF_FEATURES_ELU_PLUS_ONE: return x > 0 ? 1 : std::exp(x);
    case RF_FEATURES_RELU: return x > 0 ? 1 : 0;
  }
  return 1;
}

rf_dtype row_dtype(const rf_linear_attention_args& x) { return x.dtype == RF_F64 ? RF_F64 : RF_F32; }

// Where the rows of a sequence lie in an entry of the batch.
struct Place {
  int64_t entry, first, tokens_of_entry;
};

// By the angles, or back: the transposed matrix.
void rotate(const rf_linear_attention_args& x, const rf_attention_rotation& rotation, const Place& place, double sign,
            Rows& rows) {
  if (rotation.cos == nullptr) return;
  const rf_dtype dtype = row_dtype(x);
  const int64_t begin = (rotation.batch == 1 ? 0 : place.entry) * place.tokens_of_entry + place.first;
  for (int64_t t = 0; t < static_cast<int64_t>(rows.size()); ++t) {
    for (int64_t i = 0; i < rotation.pairs; ++i) {
      const int64_t at = (begin + t) * rotation.pairs + i;
      const double cos = load(dtype, rotation.cos, at), sin = sign * load(dtype, rotation.sin, at);
      const auto first = static_cast<size_t>(x.layout == RF_ROPE_PAIRS ? 2 * i : i);
      const auto second = static_cast<size_t>(x.layout == RF_ROPE_PAIRS ? 2 * i + 1 : i + rotation.pairs);
      std::vector<double>& row = rows[static_cast<size_t>(t)];
      const double x0 = row[first], x1 = row[second];
      row[first] = cos * x0 - sin * x1;
      row[second] = sin * x0 + cos * x1;
    }
  }
}

double dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

void add(double factor, const std::vector<double>& x, std::vector<double>& y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

// Queries or keys of one head: as given, mapped, and rotated.
struct Side {
  Rows given, plain, rotated;
  const Rows* under;  // features of the denominator

  Side(const rf_linear_attention_args& x, const rf_attention_rotation& rotation, const Place& place, Rows rows)
      : given(std::move(rows)), plain(given) {
    for (std::vector<double>& row : plain) {
      for (double& value : row) value = mapped(x.feature_map, value);
    }
    rotated = plain;
    rotate(x, rotation, place, 1, rotated);
    under = x.denominator == RF_DENOMINATOR_ROTATED ? &rotated : &plain;
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
};

struct Head {
  Head(const rf_linear_attention_args& args, int64_t sequence, int64_t head)
      : x(args),
        of(sequence_of(x, sequence)),
        b(of.entry),
        h(head),
        key_head(h / (x.heads / x.key_heads)),
        queries{b, of.first_query, x.queries},
        keys{b, of.first_key, x.keys},
        q(x, x.query, queries,
          load_rows(x.dtype, x.q, b * x.q_stride_b + of.first_query * x.q_stride_t + h * x.q_stride_h, x.q_stride_t,
                    of.queries, x.features)),
        k(x, x.key, keys,
          load_rows(x.dtype, x.k, b * x.k_stride_b + of.first_key * x.k_stride_t + key_head * x.k_stride_h,
                    x.k_stride_t, of.keys, x.features)),
        v(load_rows(x.dtype, x.v, b * x.v_stride_b + of.first_key * x.v_stride_t + key_head * x.v_stride_h,
                    x.v_stride_t, of.keys, x.value_dim)) {}

  const rf_linear_attention_args& x;
  Sequence of;
  int64_t b, h, key_head;
  Place queries, keys;
  Side q, k;
  Rows v;

  bool is_key(size_t n) const {
    const int64_t s = of.first_key + static_cast<int64_t>(n);
    return x.key_mask == nullptr || x.key_mask[b * x.key_mask_stride_b + s * x.key_mask_stride_s] != 0;
  }
  bool may_attend(size_t m, size_t n) const {
    const int64_t ahead = static_cast<int64_t>(n) - static_cast<int64_t>(m) - (of.keys - of.queries);
    return is_key(n) && (x.direction != RF_LINEAR_CAUSAL || ahead <= 0);
  }
  // The Dv + 1 numbers of the state that belong to feature f.
  double* state(size_t f) const {
    return x.state + ((of.number * x.key_heads + key_head) * x.features + static_cast<int64_t>(f)) * (x.value_dim + 1);
  }
  double& state_exponent() const { return x.state_exponents[of.number * x.key_heads + key_head]; }
  double exponent(int64_t n) const {
    return load(row_dtype(x), x.key_exponents, (b * x.keys + of.first_key + n) * x.key_heads + key_head);
  }
  // The exponent of the last key that query m may see.
  double exponent_of_query(size_t m) const { return exponent(static_cast<int64_t>(m) + of.keys - of.queries); }
  double factor(double of_keys, double of_query) const {
    return x.key_exponents == nullptr || of_keys == of_query ? 1 : std::exp(of_keys - of_query);
  }
  // The factor of query m and a key that it may see.
  double factor(size_t m, size_t n) const {
    return x.key_exponents == nullptr ? 1 : factor(exponent(static_cast<int64_t>(n)), exponent_of_query(m));
  }
};

struct Result {
  std::vector<double> out;
  double denominator;
};

Result attend(const Head& head, size_t m) {
  const rf_linear_attention_args& x = head.x;
  Result result{std::vector<double>(static_cast<size_t>(x.value_dim)), x.eps};
  const std::vector<double>&rotated = head.q.rotated[m], &under = (*head.q.under)[m];
  const bool shrinks = x.state != nullptr && x.key_exponents != nullptr;
  const double of_state = shrinks ? head.factor(head.state_exponent(), head.exponent_of_query(m)) : 1;
  for (size_t f = 0; x.state != nullptr && f < rotated.size(); ++f) {
    for (size_t e = 0; e < result.out.size(); ++e) result.out[e] += of_state * rotated[f] * head.state(f)[e];
    result.denominator += of_state * under[f] * head.state(f)[x.value_dim];
  }
  for (size_t n = 0; n < head.v.size(); ++n) {
    if (!head.may_attend(m, n)) continue;
    add(head.factor(m, n) * dot(rotated, head.k.rotated[n]), head.v[n], result.out);
    result.denominator += head.factor(m, n) * dot(under, (*head.k.under)[n]);
  }
  for (double& value : result.out) value = result.denominator == 0 ? 0 : value / result.denominator;
  return result;
}

void add_to_state(const Head& head) {
  const bool shrinks = head.x.key_exponents != nullptr && !head.v.empty();
  const double last = shrinks ? head.exponent(head.of.keys - 1) : 0;
  const double of_state = shrinks ? head.factor(head.state_exponent(), last) : 1;
  for (size_t f = 0; f < static_cast<size_t>(head.x.features); ++f) {
    for (int64_t e = 0; e <= head.x.value_dim; ++e) head.state(f)[e] *= of_state;
  }
  for (size_t n = 0; n < head.v.size(); ++n) {
    if (!head.is_key(n)) continue;
    const double factor = shrinks ? head.factor(head.exponent(static_cast<int64_t>(n)), last) : 1;
    for (size_t f = 0; f < head.k.rotated[n].size(); ++f) {
      for (size_t e = 0; e < head.v[n].size(); ++e) head.state(f)[e] += factor * head.k.rotated[n][f] * head.v[n][e];
      head.state(f)[head.x.value_dim] += factor * (*head.k.under)[n][f];
    }
  }
  if (shrinks) head.state_exponent() = last;
}

Rows zeros_like(const Rows& rows) {
  Rows zeros = rows;
  for (std::vector<double>& row : zeros) std::fill(row.begin(), row.end(), 0.0);
  return zeros;
}

// Turns gradients of the rotated features and of the denominator's features into gradients of the given array, in place
// of `rotated`.
void to_given(const rf_linear_attention_args& x, const rf_attention_rotation& rotation, const Side& side,
              const Place& place, Rows& rotated, const Rows& under) {
  const bool rotates_both = x.denominator == RF_DENOMINATOR_ROTATED;
  for (size_t t = 0; rotates_both && t < rotated.size(); ++t) add(1, under[t], rotated[t]);
  rotate(x, rotation, place, -1, rotated);
  for (size_t t = 0; t < rotated.size(); ++t) {
    if (!rotates_both) add(1, under[t], rotated[t]);
    for (size_t i = 0; i < rotated[t].size(); ++i) rotated[t][i] *= slope(x.feature_map, side.given[t][i]);
  }
}

// Rows of one head into a contiguous [B,tokens,heads,width].
void store_rows(rf_dtype dtype, void* data, const Place& place, int64_t heads, int64_t h, const Rows& rows) {
  if (data == nullptr) return;
  const int64_t begin = place.entry * place.tokens_of_entry + place.first;
  for (int64_t t = 0; t < static_cast<int64_t>(rows.size()); ++t) {
    const std::vector<double>& row = rows[static_cast<size_t>(t)];
    const auto width = static_cast<int64_t>(row.size());
    for (int64_t i = 0; i < width; ++i) {
      store(dtype, data, ((begin + t) * heads + h) * width + i, row[static_cast<size_t>(i)]);
    }
  }
}

struct Gradients {
  Rows q, k, v;
};

Gradients head_gradients(const Head& head, const Rows& y) {
  const rf_linear_attention_args& x = head.x;
  Gradients grads{zeros_like(head.q.rotated), zeros_like(head.k.rotated), zeros_like(head.v)};
  Rows q_under = grads.q, k_under = grads.k;
  for (size_t m = 0; m < y.size(); ++m) {
    const Result result = attend(head, m);
    if (result.denominator == 0) continue;
    const double c = -dot(y[m], result.out) / result.denominator;
    for (size_t n = 0; n < head.v.size(); ++n) {
      if (!head.may_attend(m, n)) continue;
      const double factor = head.factor(m, n), dw = factor * dot(y[m], head.v[n]) / result.denominator;
      add(factor * dot(head.q.rotated[m], head.k.rotated[n]) / result.denominator, y[m], grads.v[n]);
      add(dw, head.k.rotated[n], grads.q[m]);
      add(dw, head.q.rotated[m], grads.k[n]);
      add(factor * c, (*head.k.under)[n], q_under[m]);
      add(factor * c, (*head.q.under)[m], k_under[n]);
    }
  }
  to_given(x, x.query, head.q, head.queries, grads.q, q_under);
  to_given(x, x.key, head.k, head.keys, grads.k, k_under);
  // Masked keys may be NaN, which a slope of 0 would not remove.
  for (size_t n = 0; n < head.v.size(); ++n) {
    if (!head.is_key(n)) std::fill(grads.k[n].begin(), grads.k[n].end(), 0.0);
  }
  return grads;
}

}  // namespace

void linear_attention(const rf_linear_attention_args& x) {
  for (int64_t i = 0; i < core::sequence_count(x); ++i) {
    for (int64_t h = 0; h < x.heads; ++h) {
      const Head head(x, i, h);
      for (int64_t m = 0; m < head.of.queries; ++m) {
        const Result result = attend(head, static_cast<size_t>(m));
        const int64_t token = head.of.first_query + m;
        const int64_t offset = head.b * x.out_stride_b + token * x.out_stride_t + h * x.out_stride_h;
        for (int64_t e = 0; e < x.value_dim; ++e) {
          store(x.dtype, x.out, offset + e, result.out[static_cast<size_t>(e)]);
        }
        if (x.denominators != nullptr) {
          x.denominators[(head.b * x.heads + h) * x.queries + token] = static_cast<float>(result.denominator);
        }
      }
      const bool last_of_group = (h + 1) % (x.heads / x.key_heads) == 0;
      if (x.state != nullptr && last_of_group) add_to_state(head);
    }
  }
}

void linear_attention_backward(const rf_linear_attention_args& x, const rf_linear_attention_grads& grads) {
  const int64_t group = x.heads / x.key_heads;
  for (int64_t i = 0; i < core::sequence_count(x); ++i) {
    Gradients sums;
    for (int64_t h = 0; h < x.heads; ++h) {
      const Head head(x, i, h);
      const int64_t begin = head.b * grads.out_stride_b + head.of.first_query * grads.out_stride_t;
      const Rows y = load_rows(x.dtype, grads.out, begin + h * grads.out_stride_h, grads.out_stride_t, head.of.queries,
                               x.value_dim);
      Gradients own = head_gradients(head, y);
      store_rows(x.dtype, grads.q, head.queries, x.heads, h, own.q);
      if (h % group == 0) {
        sums = std::move(own);
      } else {
        for (size_t n = 0; n < sums.k.size(); ++n) {
          add(1, own.k[n], sums.k[n]);
          add(1, own.v[n], sums.v[n]);
        }
      }
      if ((h + 1) % group != 0) continue;
      store_rows(x.dtype, grads.k, head.keys, x.key_heads, head.key_head, sums.k);
      store_rows(x.dtype, grads.v, head.keys, x.key_heads, head.key_head, sums.v);
    }
  }
}

}  // namespace rf::ref
