// Terms by distance, pair by pair, for tiles whose positions do not rise by 1; shift-inl.h handles the other tiles.
#if defined(RF_CORE_ATTENTION_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_GATHER_INL_H_
#undef RF_CORE_ATTENTION_GATHER_INL_H_
#else
#define RF_CORE_ATTENTION_GATHER_INL_H_
#endif

#include <algorithm>

#include "attention/problem.h"
#include "attention/terms.h"
#include "attention/tile-inl.h"
#include "common/rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

HWY_INLINE int64_t distance(const Span& queries, const Span& keys, int64_t i, int64_t j) {
  return queries.positions[i] - keys.positions[j];
}

// (q + w) . K[r] + k . Q[r] of every pair, one at a time: for positions that do not rise by 1.
inline HWY_NOINLINE void gather_scores(const AttentionProblem& problem, int64_t h, const RawSide& queries,
                                       const RawSide& keys, float* tile) {
  const TableRows K(problem.key_table, h), Q(problem.query_table, h);
  for (int64_t j = 0; j < keys.span.count; ++j) {
    for (int64_t i = 0; i < queries.span.count; ++i) {
      const int64_t r = distance(queries.span, keys.span, i, j);
      float sum = 0;
      if (K.defined()) sum += dot(queries.raw_rows + i * problem.width, K.row(r), problem.width);
      if (Q.defined()) sum += dot(keys.raw_rows + j * problem.width, Q.row(r), problem.width);
      tile[j * kQueryTile + i] = sum;
    }
    std::fill(tile + j * kQueryTile + queries.span.count, tile + (j + 1) * kQueryTile, 0.0f);
  }
}

// out += weight V[r].
inline HWY_NOINLINE void gather_values(const AttentionProblem& problem, int64_t h, const Span& queries,
                                       const Span& keys, const float* tile, float* out) {
  const TableRows V(problem.value_table, h);
  for (int64_t i = 0; i < queries.count; ++i) {
    for (int64_t j = 0; j < keys.count; ++j) {
      add_scaled(tile[j * kQueryTile + i], V.row(distance(queries, keys, i, j)), problem.value_width,
                 out + i * problem.value_width);
    }
  }
}

// y . V[r] of every pair.
inline HWY_NOINLINE void gather_value_products(const AttentionProblem& problem, int64_t h, const Span& queries,
                                               const Span& keys, const float* y, float* tile) {
  const TableRows V(problem.value_table, h);
  for (int64_t j = 0; j < keys.count; ++j) {
    for (int64_t i = 0; i < queries.count; ++i) {
      tile[j * kQueryTile + i] =
          dot(y + i * problem.value_width, V.row(distance(queries, keys, i, j)), problem.value_width);
    }
    std::fill(tile + j * kQueryTile + queries.count, tile + (j + 1) * kQueryTile, 0.0f);
  }
}

struct QueryGradients {
  RawSide side;
  const float* y;       // [queries][value_width]: gradient of the output
  float* raw_gradient;  // [queries][width]: of q + w
};
struct KeyGradients {
  RawSide side;
  float* raw_gradient;  // [S][width]: of k
};

// The gradients that a tile gives through K, Q and V. weights: f p; scores: s dscore.
inline HWY_NOINLINE void gather_gradients(const AttentionProblem& problem, int64_t h, const QueryGradients& queries,
                                          const KeyGradients& keys, const float* weights, const float* scores,
                                          const HeadTermGradients& terms) {
  const TableRows K(problem.key_table, h), Q(problem.query_table, h), V(problem.value_table, h);
  const Span &query_span = queries.side.span, &key_span = keys.side.span;
  const auto add_row = [](float factor, const float* row, int64_t width, float* gradient, int64_t index) {
    if (gradient != nullptr) add_scaled(factor, row, width, gradient + index * width);
  };
  for (int64_t j = 0; j < key_span.count; ++j) {
    for (int64_t i = 0; i < query_span.count; ++i) {
      const int64_t r = distance(query_span, key_span, i, j);
      const float g = scores[j * kQueryTile + i];
      if (K.defined()) {
        add_scaled(g, K.row(r), problem.width, queries.raw_gradient + i * problem.width);
        add_row(g, queries.side.raw_rows + i * problem.width, problem.width, terms.key_table, K.index(r));
      }
      if (Q.defined()) {
        add_scaled(g, Q.row(r), problem.width, keys.raw_gradient + (key_span.first + j) * problem.width);
        add_row(g, keys.side.raw_rows + j * problem.width, problem.width, terms.query_table, Q.index(r));
      }
      if (V.defined()) {
        const float weight = weights[j * kQueryTile + i];
        add_row(weight, queries.y + i * problem.value_width, problem.value_width, terms.value_table, V.index(r));
      }
    }
  }
}

// b, row and col. scores: dscore.
inline HWY_NOINLINE void gather_position_gradients(const AttentionProblem& problem, int64_t h, const Span& queries,
                                                   const Span& keys, const float* scores,
                                                   const HeadTermGradients& terms) {
  const rf_attention_args& x = problem.args;
  const TableRows bias(problem.bias, h);
  for (int64_t j = 0; j < keys.count; ++j) {
    for (int64_t i = 0; i < queries.count; ++i) {
      const float g = scores[j * kQueryTile + i];
      if (x.reset_row != nullptr && queries.positions[i] == 0) {
        if (terms.reset_row != nullptr) *terms.reset_row += g;
      } else if (x.reset_col != nullptr && keys.positions[j] == 0) {
        if (terms.reset_col != nullptr) *terms.reset_col += g;
      } else if (terms.bias != nullptr) {
        terms.bias[bias.index(distance(queries, keys, i, j))] += g;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
