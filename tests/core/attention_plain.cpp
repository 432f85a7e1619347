// The plain formula in 16 bits (see the header), written from the equation of rf/attention.h a head at a time.
#include "attention_plain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/element.h"
#include "common/scalar_element.h"

namespace rf::tests {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

double dot(const double* x, const double* y, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

void add(Row& sums, double factor, const double* row) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += factor * row[i];
}

// A term's rows by distance, of one head.
struct Table {
  Table(const rf_attention_table& table, void* gradient, int64_t head)
      : lo(table.lo), hi(table.hi), width(table.width), is_set(table.rows != nullptr) {
    const int64_t offset = table.heads == 1 ? 0 : head * (hi - lo + 1) * width;
    if (is_set) rows = static_cast<const double*>(table.rows) + offset;
    if (gradient != nullptr) gradients = static_cast<double*>(gradient) + offset;
  }
  int64_t at(int64_t distance) const { return (std::clamp(distance, lo, hi) - lo) * width; }
  const double* row(int64_t distance) const { return rows + at(distance); }
  void add_gradient(int64_t distance, double factor, const double* row) const {
    if (gradients == nullptr) return;
    for (int64_t i = 0; i < width; ++i) gradients[at(distance) + i] += factor * row[i];
  }

  int64_t lo, hi, width;
  bool is_set;
  const double* rows = nullptr;
  double* gradients = nullptr;
};

// A head of a batch entry, or of a packed sequence: queries first_query .. and keys first_key .. of the arrays.
struct Part {
  int64_t b, head, first_query, queries, first_key, keys;
  int64_t entry;  // of the batch, or of the packed sequences
};

class Head {
 public:
  Head(rf_dtype dtype, const rf_attention_args& x, const rf_attention_grads& grads, const Part& part)
      : dtype_(dtype),
        x_(x),
        grads_(grads),
        part_(part),
        key_table_(x.key_table, grads.key_table, part.head),
        query_table_(x.query_table, grads.query_table, part.head),
        value_table_(x.value_table, grads.value_table, part.head),
        bias_(x.bias, grads.bias, part.head) {}

  void run() {
    const int64_t key_head = this->key_head();
    for (int64_t n = 0; n < part_.keys; ++n) {
      const int64_t s = part_.first_key + n;
      const auto* k = static_cast<const double*>(x_.k) + part_.b * x_.k_stride_b + s * x_.k_stride_t;
      const auto* v = static_cast<const double*>(x_.v) + part_.b * x_.v_stride_b + s * x_.v_stride_t;
      k_.emplace_back(k + key_head * x_.k_stride_h, k + key_head * x_.k_stride_h + x_.head_dim);
      const Row value(v + key_head * x_.v_stride_h, v + key_head * x_.v_stride_h + x_.value_dim);
      rotated_k_.push_back(rotated(k_.back(), of_keys(), s, 1));
      rotated_v_.push_back(rotated(value, of_values(), s, 1));
      dk_.emplace_back(x_.head_dim), dk_table_.emplace_back(x_.head_dim), dv_.emplace_back(x_.value_dim);
    }
    for (int64_t m = 0; m < part_.queries; ++m) run_query(m);
    for (int64_t n = 0; n < part_.keys; ++n) {
      const int64_t row = (part_.b * x_.keys + part_.first_key + n) * x_.key_heads + key_head;
      const int64_t s = part_.first_key + n;
      Row dk = rotated(round(dk_[n]), of_keys(), s, -1);
      if (query_table_.is_set) add(dk, 1, round(dk_table_[n]).data());
      accumulate(grads_.k, row * x_.head_dim, dk);
      accumulate(grads_.v, row * x_.value_dim, rotated(round(dv_[n]), of_values(), s, -1));
    }
  }

 private:
  double round(double value) const { return tests::rounded(dtype_, value); }
  Row round(Row row) const {
    for (double& value : row) value = round(value);
    return row;
  }

  static void accumulate(void* gradients, int64_t offset, const Row& row) {
    if (gradients == nullptr) return;
    for (size_t i = 0; i < row.size(); ++i) static_cast<double*>(gradients)[offset + static_cast<int64_t>(i)] += row[i];
  }

  // A rotation of a side: its rows for this head.
  struct Rotation {
    const rf_attention_rotation& rows;
    int64_t tokens, heads, head;

    int64_t row(int64_t b, int64_t token) const {
      const int64_t all = (rows.batch == 1 ? 0 : b) * tokens + token;
      return (heads <= 1 ? all : all * heads + head) * rows.pairs;
    }
  };
  int64_t key_head() const { return part_.head / (x_.heads / x_.key_heads); }
  Rotation of_queries() const { return {x_.query, x_.queries, x_.query_rotation_heads, part_.head}; }
  Rotation of_keys() const { return {x_.key, x_.keys, x_.key_rotation_heads, key_head()}; }
  Rotation of_values() const { return {x_.value, x_.keys, x_.value_rotation_heads, key_head()}; }

  // The two elements of pair i.
  std::pair<size_t, size_t> pair_of(const Rotation& rotation, int64_t i) const {
    const bool pairs = x_.layout == RF_ROPE_PAIRS;
    const auto a = static_cast<size_t>(pairs ? 2 * i : i);
    return {a, pairs ? a + 1 : a + static_cast<size_t>(rotation.rows.pairs)};
  }

  // R x, or R^T x for direction -1.
  Row rotated(const Row& x, const Rotation& rotation, int64_t token, int direction) const {
    Row y = x;
    if (rotation.rows.cos == nullptr) return y;
    const int64_t row = rotation.row(part_.b, token);
    const auto* cos = static_cast<const double*>(rotation.rows.cos) + row;
    const auto* sin = static_cast<const double*>(rotation.rows.sin) + row;
    for (int64_t i = 0; i < rotation.rows.pairs; ++i) {
      const auto [a, b] = pair_of(rotation, i);
      y[a] = round(cos[i] * x[a] - direction * sin[i] * x[b]);
      y[b] = round(direction * sin[i] * x[a] + cos[i] * x[b]);
    }
    return y;
  }

  const double* of_head(const void* rows) const { return static_cast<const double*>(rows) + part_.head * x_.head_dim; }
  const double* of_position(const void* rows, int64_t position) const {
    return static_cast<const double*>(rows) + (part_.head * x_.positions + position) * x_.head_dim;
  }

  bool may_attend(int64_t m, int64_t n) const {
    const int64_t ahead = n - (m + part_.keys - part_.queries);
    if ((x_.window & RF_WINDOW_LEFT) != 0 && ahead < -x_.window_left) return false;
    const bool is_prefix = x_.prefix != nullptr && n < x_.prefix[part_.entry];
    if ((x_.window & RF_WINDOW_RIGHT) != 0 && ahead > x_.window_right && !is_prefix) return false;
    return x_.mask == nullptr ||
           x_.mask[part_.b * x_.mask_stride_b + part_.head * x_.mask_stride_h +
                   (part_.first_query + m) * x_.mask_stride_t + (part_.first_key + n) * x_.mask_stride_s] != 0;
  }

  // Everything about a query that its keys share.
  struct Query {
    int64_t position;
    Row content, distance, dy;  // q rotated with u, q with w
    Row dcontent, ddistance;
  };

  int64_t key_position(int64_t n) const {
    return x_.key_positions[part_.b * x_.key_position_stride_b + part_.first_key + n];
  }
  bool resets(const Query& query, int64_t n, const double*& reset, double*& gradient) const {
    const bool row = x_.reset_row != nullptr && query.position == 0,
               col = x_.reset_col != nullptr && key_position(n) == 0;
    if (!row && !col) return false;
    reset = static_cast<const double*>(row ? x_.reset_row : x_.reset_col) + part_.head;
    void* all = row ? grads_.reset_row : grads_.reset_col;
    gradient = all == nullptr ? nullptr : static_cast<double*>(all) + part_.head;
    return true;
  }

  // The number of query m and key n in numbers of tokens, and in their contiguous gradient; of_pairs: one per pair.
  double number_of(const rf_attention_scores& scores, int64_t m, int64_t n) const {
    if (scores.numbers == nullptr) return 0;
    const int64_t b = scores.batch == 1 ? 0 : part_.b, h = scores.heads == 1 ? 0 : part_.head;
    const int64_t t = part_.first_query + m, s = part_.first_key + n;
    return static_cast<const double*>(
        scores.numbers)[b * scores.stride_b + h * scores.stride_h + t * scores.stride_t + s];
  }
  void add_to_number_of(void* gradient, const rf_attention_scores& scores, bool of_pairs, int64_t m, int64_t n,
                        double dscore) const {
    if (gradient == nullptr) return;
    const int64_t b = scores.batch == 1 ? 0 : part_.b, h = scores.heads == 1 ? 0 : part_.head;
    const int64_t rows = of_pairs ? x_.queries : 1, row = of_pairs ? part_.first_query + m : 0;
    const int64_t key = part_.first_key + n;
    static_cast<double*>(gradient)[((b * scores.heads + h) * rows + row) * x_.keys + key] += dscore;
  }

  double score(const Query& query, int64_t n) const {
    const int64_t distance = query.position - key_position(n);
    const auto width = static_cast<size_t>(x_.head_dim);
    double sum = round(dot(query.content.data(), rotated_k_[n].data(), width));
    if (key_table_.is_set) sum = round(sum + round(dot(query.distance.data(), key_table_.row(distance), width)));
    if (query_table_.is_set) sum = round(sum + round(dot(k_[n].data(), query_table_.row(distance), width)));
    double result = round(x_.scale * sum);
    const double* reset = nullptr;
    double* unused = nullptr;
    if (resets(query, n, reset, unused)) return round(result + *reset);
    if (bias_.is_set) result = round(result + *bias_.row(distance));
    if (x_.position_query == nullptr) return result;
    const double product =
        dot(of_position(x_.position_query, query.position), of_position(x_.position_key, key_position(n)), width);
    return round(result + round(x_.scale * round(product)));
  }

  // Probabilities of the keys, 0 where the query may not attend.
  Row softmax(const Query& query, int64_t m) const {
    Row weights(part_.keys, -std::numeric_limits<double>::infinity());
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t n = 0; n < part_.keys; ++n) {
      if (!may_attend(m, n)) continue;
      weights[n] = round(score(query, n) + number_of(x_.key_score, m, n));
      weights[n] = round(weights[n] + number_of(x_.pair_bias, m, n));
      most = std::max(most, weights[n]);
    }
    if (std::isinf(most)) return Row(part_.keys);
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    for (double& weight : weights) weight = round(weight / sum);
    return weights;
  }

  Query query_of(int64_t m) const {
    const int64_t t = part_.first_query + m;
    const auto* q = static_cast<const double*>(x_.q) + part_.b * x_.q_stride_b + t * x_.q_stride_t;
    const auto* dy = static_cast<const double*>(grads_.out) + part_.b * grads_.out_stride_b + t * grads_.out_stride_t +
                     part_.head * grads_.out_stride_h;
    Query query;
    query.position = x_.query_positions[part_.b * x_.query_position_stride_b + t];
    query.distance.assign(q + part_.head * x_.q_stride_h, q + part_.head * x_.q_stride_h + x_.head_dim);
    query.content = rotated(query.distance, of_queries(), t, 1);
    if (x_.content_bias != nullptr) add(query.content, 1, of_head(x_.content_bias));
    if (x_.position_bias != nullptr) add(query.distance, 1, of_head(x_.position_bias));
    query.content = round(query.content), query.distance = round(query.distance);
    query.dy.assign(dy, dy + x_.value_dim);
    query.dcontent.resize(query.content.size()), query.ddistance.resize(query.distance.size());
    return query;
  }

  Row output(const Query& query, const Row& weights) const {
    Row out(x_.value_dim), of_table(x_.value_dim);
    for (int64_t n = 0; n < part_.keys; ++n) {
      add(out, weights[n], rotated_v_[n].data());
      if (value_table_.is_set) add(of_table, weights[n], value_table_.row(query.position - key_position(n)));
    }
    out = round(out);
    if (value_table_.is_set) add(out, 1, round(of_table).data());
    return round(out);
  }

  void run_query(int64_t m) {
    Query query = query_of(m);
    const Row weights = softmax(query, m), out = output(query, weights);
    const int64_t t = part_.first_query + m, row = (part_.b * x_.queries + t) * x_.heads + part_.head;
    auto* to =
        static_cast<double*>(x_.out) + part_.b * x_.out_stride_b + t * x_.out_stride_t + part_.head * x_.out_stride_h;
    std::copy(out.begin(), out.end(), to);
    const double mean = round(dot(query.dy.data(), out.data(), out.size()));
    for (int64_t n = 0; n < part_.keys; ++n) {
      if (weights[n] != 0) run_pair(query, m, n, weights[n], mean);
    }
    Row dq = rotated(round(query.dcontent), of_queries(), t, -1);
    add(dq, 1, round(query.ddistance).data());
    accumulate(grads_.q, row * x_.head_dim, round(dq));
    accumulate(grads_.content_bias, part_.head * x_.head_dim, round(query.dcontent));
    accumulate(grads_.position_bias, part_.head * x_.head_dim, round(query.ddistance));
  }

  // The backward of one probability; `mean` is dy . out.
  void run_pair(Query& query, int64_t m, int64_t n, double weight, double mean) {
    const int64_t distance = query.position - key_position(n);
    const auto width = static_cast<size_t>(x_.value_dim);
    double dweight = round(dot(query.dy.data(), rotated_v_[n].data(), width));
    if (value_table_.is_set) dweight = round(dweight + round(dot(query.dy.data(), value_table_.row(distance), width)));
    add(dv_[n], weight, query.dy.data());
    value_table_.add_gradient(distance, weight, query.dy.data());
    const double dscore = round(weight * round(dweight - mean)), scaled = round(dscore * x_.scale);
    add_to_number_of(grads_.key_score, x_.key_score, /*of_pairs=*/false, m, n, dscore);
    add_to_number_of(grads_.pair_bias, x_.pair_bias, /*of_pairs=*/true, m, n, dscore);
    add(query.dcontent, scaled, rotated_k_[n].data());
    add(dk_[n], scaled, query.content.data());
    if (key_table_.is_set) add(query.ddistance, scaled, key_table_.row(distance));
    if (query_table_.is_set) add(dk_table_[n], scaled, query_table_.row(distance));
    key_table_.add_gradient(distance, scaled, query.distance.data());
    query_table_.add_gradient(distance, scaled, k_[n].data());
    const double* reset = nullptr;
    double* gradient = nullptr;
    if (resets(query, n, reset, gradient)) {
      if (gradient != nullptr) *gradient += dscore;
      return;
    }
    const double one = 1;
    bias_.add_gradient(distance, dscore, &one);
    if (x_.position_query == nullptr) return;
    const auto add_to = [&](void* gradients, int64_t position, const double* row) {
      Row sums(x_.head_dim);
      add(sums, scaled, row);
      accumulate(gradients, (part_.head * x_.positions + position) * x_.head_dim, sums);
    };
    add_to(grads_.position_query, query.position, of_position(x_.position_key, key_position(n)));
    add_to(grads_.position_key, key_position(n), of_position(x_.position_query, query.position));
  }

  const rf_dtype dtype_;
  const rf_attention_args& x_;
  const rf_attention_grads& grads_;
  const Part part_;
  const Table key_table_, query_table_, value_table_, bias_;
  Rows k_, rotated_k_, rotated_v_, dk_, dk_table_, dv_;
};

}  // namespace

double rounded(rf_dtype dtype, double value) {
  const auto number = static_cast<float>(value);
  return dtype == RF_BF16 ? core::to_arithmetic(core::from_arithmetic<core::BFloat16>(number))
                          : core::to_arithmetic(core::from_arithmetic<core::Float16>(number));
}

void plain_attention(rf_dtype dtype, const rf_attention_args& x, const rf_attention_grads& grads) {
  const bool packed = x.cu_seqlens_q != nullptr;
  for (int64_t head = 0; head < x.heads; ++head) {
    for (int64_t i = 0; i < (packed ? x.sequences : x.batch); ++i) {
      Part part = {i, head, 0, x.queries, 0, x.keys, i};
      if (packed) {
        const int64_t query = x.cu_seqlens_q[i], key = x.cu_seqlens_k[i];
        part = {0, head, query, x.cu_seqlens_q[i + 1] - query, key, x.cu_seqlens_k[i + 1] - key, i};
      }
      Head(dtype, x, grads, part).run();
    }
  }
  const auto round_all = [&](void* gradients, int64_t count) {
    for (int64_t i = 0; gradients != nullptr && i < count; ++i) {
      auto& value = static_cast<double*>(gradients)[i];
      value = rounded(dtype, value);
    }
  };
  round_all(grads.k, x.batch * x.keys * x.key_heads * x.head_dim);  // sums over the heads of a group
  round_all(grads.v, x.batch * x.keys * x.key_heads * x.value_dim);
}

}  // namespace rf::tests
