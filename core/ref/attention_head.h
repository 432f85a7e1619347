// One query head of one batch entry, and the equation's quantities for a query and a key. Shared by the forward and the
// backward.
#pragma once

#include <cstdint>
#include <vector>

#include "rf/attention.h"

namespace rf::ref {

class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns) : columns_(columns), values_(static_cast<size_t>(rows * columns)) {}
  int64_t columns() const { return columns_; }
  int64_t rows() const { return columns_ == 0 ? 0 : static_cast<int64_t>(values_.size()) / columns_; }
  double* operator[](int64_t row) { return values_.data() + row * columns_; }
  const double* operator[](int64_t row) const { return values_.data() + row * columns_; }

 private:
  int64_t columns_;
  std::vector<double> values_;
};

// data[index] of a term, or the default of an absent term.
inline double element(const void* data, int64_t index, double absent = 0) {
  return data == nullptr ? absent : static_cast<const double*>(data)[index];
}

// The rows of a rotation that belong to a head; all heads share them if `heads` is 0 or 1.
struct RotationHead {
  int64_t heads, head;

  // Index of the first number of token t.
  int64_t row(const rf_attention_rotation& rotation, int64_t b, int64_t tokens, int64_t t) const {
    const int64_t row_of_token = (rotation.batch == 1 ? 0 : b) * tokens + t;
    return (heads <= 1 ? row_of_token : row_of_token * heads + head) * rotation.pairs;
  }
};

struct Head {
  Head(const rf_attention_args& args, int64_t b, int64_t h);

  const rf_attention_args& args;
  int64_t b, h;
  int64_t key_head;                                // the head of k and v that h reads
  Matrix q, k, v;                                  // [T,D], [S,D], [S,Dv]
  Matrix rotated_q, rotated_k, rotated_v;          // R^q q, R^k k, R^v v
  const int64_t *query_positions, *key_positions;  // p_m [T], p_n [S]

  int64_t distance(int64_t m, int64_t n) const { return query_positions[m] - key_positions[n]; }
};

// Indices of the two elements of pair i.
struct Pair {
  int64_t first, second;
};
Pair pair_of(rf_rope_layout layout, int64_t pairs, int64_t i);

// Index in table.rows of the first element of the row of this head and distance.
int64_t row_of(const rf_attention_table& table, int64_t h, int64_t distance);

// Index in a row of element d: rows of one element, as a gate may have, serve for every d.
inline int64_t column_of(const rf_attention_table& table, int64_t d) { return table.width == 1 ? 0 : d; }

// The number that `scores` adds to score(m,n).
double added_score(const rf_attention_scores& scores, const Head& head, int64_t m, int64_t n);

// Which of the three cases of pos(m,n) holds.
enum class PositionTerm { kRow, kColumn, kBias };
PositionTerm position_term(const Head& head, int64_t m, int64_t n);

// The keys that query m may attend to, in order, and their probabilities.
struct AttentionRow {
  std::vector<int64_t> keys;
  std::vector<double> probabilities;
};
AttentionRow attention_row(const Head& head, int64_t m);

// Element e of R^v_n v_n + V[r].
double value(const Head& head, int64_t m, int64_t n, int64_t e);

}  // namespace rf::ref
