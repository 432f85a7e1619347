// G in tiles: products of queries and keys that depend on their distance, of content alone.
//
//   rows of one number   G[r] (q . k): the tile of products times numbers by distance
//   rows of vectors      sum_d q_d G[r]_d k_d: no product of matrices; a query in every lane, forward, and an element
//                        in every lane, backward, where the parts of a pair in dq, dk and dG are added row by row
//
// q is R^q q + u, k is R^k k. The terms that G does not touch are added afterwards.
#if defined(RF_CORE_ATTENTION_GATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_GATE_INL_H_
#undef RF_CORE_ATTENTION_GATE_INL_H_
#else
#define RF_CORE_ATTENTION_GATE_INL_H_
#endif

#include <algorithm>

#include "attention/problem.h"
#include "attention/product-inl.h"
#include "attention/shift-inl.h"
#include "attention/sides-inl.h"
#include "attention/table_gradients-inl.h"
#include "attention/tables-inl.h"
#include "attention/tile-inl.h"
#include "common/arena.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

class Gate {
 public:
  enum class Use { kForward, kBackward };
  Gate(const AttentionProblem& problem, Use use, Arena& arena)
      : problem_(problem),
        use_(use),
        start_(arena.take<float>(problem.is_gated() ? kTileFloats : 0)),
        numbers_(arena.take<float>(has_numbers() ? kTileFloats : 0)),
        products_(arena.take<float>(has_numbers() && use == Use::kBackward ? kTileFloats : 0)),
        copies_(arena.take<float>(has_vectors() ? kPanelRows * problem.width : 0)),
        rows_(arena.take<float>(has_vectors() ? kPanelColumns * problem.width : 0)),
        query_columns_(arena.take<float>(has_vectors() ? kQueryTile * problem.width : 0)),
        query_gradient_(arena.take<float>(has_vectors() && use == Use::kBackward ? kQueryTile * problem.width : 0)) {}

  // Where to compute the start of a tile, the terms that G does not touch: in the tile itself without G.
  float* start_of(float* tile) const { return problem_.is_gated() ? start_ : tile; }
  // raw_scores, multiplied by G if it is set.
  void raw_scores_of(int64_t head, const QuerySide& queries, const KeySide& keys, const Start& start,
                     const Product& product, float* tile);
  // scores: s dscore of the tile that raw_scores_of computed last. With numbers they become the gradient of the product
  // without the gate; with vectors all gradients are added: key_gradient [keys][inner], query_gradient
  // [inner][kQueryTile]. of_table: nullptr, or of the head.
  void multiply_gradients(int64_t head, const Span& queries, const Span& keys, float* scores, GradientSpace& space,
                          float* of_table);
  void add_vector_gradients(int64_t head, const QuerySide& queries, const KeySide& keys, const float* scores,
                            float* query_gradient, float* key_gradient, float* of_table);
  bool has_vectors() const { return problem_.is_gated_by_vectors(); }

 private:
  static constexpr int64_t kPanelColumns = kPanelRows + kRowFloats;

  bool has_numbers() const { return problem_.is_gated() && !has_vectors(); }
  void compute_numbers(int64_t head, const Span& queries, const Span& keys);
  void multiply_by_numbers(int64_t keys, float* tile) const;
  void add_position_products(const QuerySide& queries, const KeySide& keys, Product p, float* tile) const;
  void multiply_vectors(const TableRows& G, const QuerySide& queries, const KeySide& keys, float* tile);
  void gather_vectors(const TableRows& G, const QuerySide& queries, const KeySide& keys, float* tile) const;

  const AttentionProblem& problem_;
  Use use_;
  float* start_;
  float* numbers_;
  const float* first_ = nullptr;  // of key 0's row of numbers
  int64_t stride_ = 0;
  float* products_;        // of a tile, before the gate
  float* copies_;          // rows by distance beyond the ends of the table
  float* rows_;            // [width][kPanelColumns]: rows of a tile, a distance per column
  float* query_columns_;   // [width][kQueryTile]
  float* query_gradient_;  // [queries][width]
};

inline void Gate::compute_numbers(int64_t head, const Span& queries, const Span& keys) {
  const TableRows G(problem_.gate, head);
  if (steps(queries, keys)) {
    const int64_t least = queries.positions[0] - keys.positions[keys.count - 1];
    fill_distances(G, least, kQueryTile + keys.count - 1, 1, numbers_);
    first_ = numbers_ + keys.count - 1;
    stride_ = -1;
    return;
  }
  for (int64_t j = 0; j < keys.count; ++j) {
    float* to = numbers_ + j * kQueryTile;
    for (int64_t i = 0; i < queries.count; ++i) to[i] = *G.row(queries.positions[i] - keys.positions[j]);
    std::fill(to + queries.count, to + kQueryTile, 0.0f);
  }
  first_ = numbers_;
  stride_ = kQueryTile;
}

inline HWY_NOINLINE void Gate::multiply_by_numbers(int64_t keys, float* tile) const {
  const FloatTag d;
  for (int64_t j = 0; j < keys; ++j, tile += kQueryTile) {
    const float* row = first_ + j * stride_;
    for (int64_t l = 0; l < kQueryTile; l += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, tile + l), hn::LoadU(d, row + l)), d, tile + l);
    }
  }
}

// tile[j][i] = sum_d q[d][i] rows[d][i - j + keys - 1] k[j][d], several keys at a time.
inline HWY_NOINLINE void Gate::multiply_vectors(const TableRows& G, const QuerySide& queries, const KeySide& keys,
                                                float* tile) {
  constexpr int64_t kKeys = 4;
  const FloatTag d;
  const int64_t count = keys.span.count, width = problem_.width, inner = problem_.inner;
  const Distances distances(queries.span, keys.span);
  transpose(rows_at(G, distances, 0, distances.count, copies_), width, distances.count, width, rows_, kPanelColumns);
  if (queries.span.count < kQueryTile) std::fill_n(query_columns_, kQueryTile * width, 0.0f);
  transpose(queries.rows, inner, queries.span.count, width, query_columns_, kQueryTile);
  for (int64_t first = 0; first < count; first += kKeys) {
    const float *k[kKeys], *row[kKeys];
    for (int64_t j = 0; j < kKeys; ++j) {  // repeats the last key at the end
      const int64_t key = std::min(first + j, count - 1);
      k[j] = keys.rows + key * inner;
      row[j] = rows_ + count - 1 - key;
    }
    for (int64_t l = 0; l < kQueryTile; l += kLanes) {
      FloatVec sum[kKeys];
      HWY_UNROLL(4)
      for (int j = 0; j < kKeys; ++j) sum[j] = hn::Zero(d);
      for (int64_t e = 0; e < problem_.args.head_dim; ++e) {
        const auto q = hn::LoadU(d, query_columns_ + e * kQueryTile + l);
        HWY_UNROLL(4)
        for (int j = 0; j < kKeys; ++j) {
          const auto gated = hn::Mul(q, hn::LoadU(d, row[j] + e * kPanelColumns + l));
          sum[j] = hn::MulAdd(gated, hn::Set(d, k[j][e]), sum[j]);
        }
      }
      for (int64_t j = 0; j < std::min(kKeys, count - first); ++j) {
        hn::StoreU(sum[j], d, tile + (first + j) * kQueryTile + l);
      }
    }
  }
}

inline HWY_NOINLINE void Gate::gather_vectors(const TableRows& G, const QuerySide& queries, const KeySide& keys,
                                              float* tile) const {
  const FloatTag d;
  for (int64_t j = 0; j < keys.span.count; ++j) {
    const float* k = keys.rows + j * problem_.inner;
    float* to = tile + j * kQueryTile;
    for (int64_t i = 0; i < queries.span.count; ++i) {
      const float *q = queries.rows + i * problem_.inner,
                  *row = G.row(queries.span.positions[i] - keys.span.positions[j]);
      to[i] = sum_vectors(problem_.width, [&](int64_t e) HWY_ATTR {
        return hn::Mul(hn::Mul(hn::LoadU(d, q + e), hn::LoadU(d, row + e)), hn::LoadU(d, k + e));
      });
    }
    std::fill(to + queries.span.count, to + kQueryTile, 0.0f);
  }
}

// tile += a . c
inline void Gate::add_position_products(const QuerySide& queries, const KeySide& keys, Product p, float* tile) const {
  p.start = p.c = tile;
  p.start_row = p.c_row = p.b_step = kQueryTile;
  p.b = queries.columns + problem_.width * kQueryTile;
  p.a = keys.rows + problem_.width;
  p.a_row = problem_.inner;
  p.a_step = 1;
  p.depth = problem_.inner - problem_.width;
  p.rows = keys.span.count;
  p.vectors = (queries.span.count + kLanes - 1) / kLanes;
  multiply<FloatElements>(p);
}

inline void Gate::raw_scores_of(int64_t head, const QuerySide& queries, const KeySide& keys, const Start& start,
                                const Product& product, float* tile) {
  if (!problem_.is_gated()) return raw_scores(problem_, queries, keys, start, product, tile, problem_.inner);
  const int64_t floats = keys.span.count * kQueryTile;
  if (has_vectors()) {
    const TableRows G(problem_.gate, head);
    steps(queries.span, keys.span) ? multiply_vectors(G, queries, keys, tile) : gather_vectors(G, queries, keys, tile);
  } else {
    raw_scores(problem_, queries, keys, {}, product, tile, problem_.width);
    if (use_ == Use::kBackward) std::copy_n(tile, floats, products_);
    compute_numbers(head, queries.span, keys.span);
    multiply_by_numbers(keys.span.count, tile);
  }
  if (problem_.inner > problem_.width) add_position_products(queries, keys, product, tile);
  if (start.rows == nullptr) return;
  for (int64_t j = 0; j < keys.span.count; ++j) {
    add_scaled(1, start.rows + j * start.stride, kQueryTile, tile + j * kQueryTile);
  }
}

inline HWY_NOINLINE void Gate::multiply_gradients(int64_t head, const Span& queries, const Span& keys, float* scores,
                                                  GradientSpace& space, float* of_table) {
  if (of_table != nullptr) {
    const FloatTag d;
    const TableRows G(problem_.gate, head);
    for (int64_t i = 0; i < keys.count * kQueryTile; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, products_ + i), hn::LoadU(d, scores + i)), d, products_ + i);
    }
    if (steps(queries, keys)) {
      add_diagonals(G, queries, keys, products_, space, of_table);
    } else {
      for (int64_t j = 0; j < keys.count; ++j) {
        for (int64_t i = 0; i < queries.count; ++i) {
          of_table[G.index(queries.positions[i] - keys.positions[j])] += products_[j * kQueryTile + i];
        }
      }
    }
  }
  multiply_by_numbers(keys.count, scores);
}

inline HWY_NOINLINE void Gate::add_vector_gradients(int64_t head, const QuerySide& queries, const KeySide& keys,
                                                    const float* scores, float* query_gradient, float* key_gradient,
                                                    float* of_table) {
  const FloatTag d;
  const TableRows G(problem_.gate, head);
  const int64_t width = problem_.width, inner = problem_.inner, count = queries.span.count;
  std::fill_n(query_gradient_, count * width, 0.0f);
  for (int64_t j = 0; j < keys.span.count; ++j) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t r = queries.span.positions[i] - keys.span.positions[j];
      const auto g = hn::Set(d, scores[j * kQueryTile + i]);
      const float *q = queries.rows + i * inner, *k = keys.rows + j * inner, *row = G.row(r);
      float *to_q = query_gradient_ + i * width, *to_k = key_gradient + j * inner,
            *to_row = of_table == nullptr ? nullptr : of_table + G.index(r) * G.stride;
      for (int64_t e = 0; e < width; e += kLanes) {
        const auto q_e = hn::LoadU(d, q + e), k_e = hn::LoadU(d, k + e), g_row = hn::Mul(g, hn::LoadU(d, row + e));
        hn::StoreU(hn::MulAdd(g_row, k_e, hn::LoadU(d, to_q + e)), d, to_q + e);
        hn::StoreU(hn::MulAdd(g_row, q_e, hn::LoadU(d, to_k + e)), d, to_k + e);
        if (to_row == nullptr) continue;
        hn::StoreU(hn::MulAdd(hn::Mul(g, q_e), k_e, hn::LoadU(d, to_row + e)), d, to_row + e);
      }
    }
  }
  transpose(query_gradient_, width, count, width, query_columns_, kQueryTile);
  for (int64_t e = 0; e < problem_.args.head_dim; ++e) {
    for (int64_t i = 0; i < count; ++i) query_gradient[e * kQueryTile + i] += query_columns_[e * kQueryTile + i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
