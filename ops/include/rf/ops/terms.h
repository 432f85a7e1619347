// The position terms of attention: the terms of one equation, which rf/attention_terms.h lists. Every encoding of the
// table chooses some terms; attention never sees the name of an encoding. Letters: H query heads (also under grouped
// keys), D head size, R rotated dims, T queries, S keys, B batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "rf/attention_terms.h"

namespace rf::ops {

// Rows of a rotation: pair i of a token's vectors is rotated counter-clockwise by the angle with this cosine and sine;
// a magnitude other than 1 (xPos, attention factors) is in both. float32, or float64 for float64 data.
struct Rotation {
  // [B or 1, T or S, R/2], or [B or 1, T or S, 1 or H, R/2] with rows for each head, Hk of keys and values; both
  // undefined: no rotation.
  at::Tensor cos, sin;
  bool defined() const { return cos.defined(); }
};
// The dtype of rows and tables that are computed for queries and keys of a dtype.
inline at::ScalarType row_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// Rows by distance, query minus key: rows[.., d - lo] belongs to distance d; distances below lo take the first row,
// distances above hi the last row.
struct DistanceTable {
  at::Tensor rows;  // [H or 1, hi - lo + 1, D]; b: [H or 1, hi - lo + 1]; G: [H or 1, hi - lo + 1, D or 1]
  int64_t lo = 0, hi = 0;
  bool defined() const { return rows.defined(); }
};

#define RF_ROTATION(name, symbol, side) Rotation name = {};
#define RF_TABLE(name, symbol, width) DistanceTable name = {};
#define RF_NUMBERS(name, symbol, width) at::Tensor name = {};
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol) at::Tensor query_name = {}, key_name = {};
#define RF_SCORES(name, symbol, rows) at::Tensor name = {};
struct Terms {
  RF_ATTENTION_TERMS(RF_ROTATION, RF_TABLE, RF_NUMBERS, RF_PAIR, RF_SCORES)
  std::string layout = "pairs";      // of all rotations: "pairs" or "halves", as in rf/ops/ops.h
  std::optional<double> scale = {};  // s; absent: 1/sqrt(D)

  // p_m and p_n that the terms were computed for, int64 [1 or B, T] and [1 or B, S]; undefined: valid for all
  // positions.
  at::Tensor query_positions = {}, key_positions = {};
};
#undef RF_ROTATION
#undef RF_TABLE
#undef RF_NUMBERS
#undef RF_PAIR
#undef RF_SCORES

// Calls visit(name, symbol, member) for each term in the order of the list; `member` is &Terms::name, and its type has
// defined().
template <class Visit>
void for_each_term(const Visit& visit) {
#define RF_VISIT(name, symbol, ...) visit(#name, symbol, &Terms::name);
#define RF_VISIT_PAIR(query_name, query_symbol, key_name, key_symbol) \
  RF_VISIT(query_name, query_symbol) RF_VISIT(key_name, key_symbol)
  RF_ATTENTION_TERMS(RF_VISIT, RF_VISIT, RF_VISIT, RF_VISIT_PAIR, RF_VISIT)
#undef RF_VISIT
#undef RF_VISIT_PAIR
}

// The tensors of terms in the order of the list, two for a rotation: their names, their places in terms, undefined
// where absent, and for each the table by distance that it is the rows of, or nullptr.
#define RF_ROTATION(name, ...) #name "_cos", #name "_sin",
#define RF_TERM(name, ...) #name,
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol) #query_name, #key_name,
inline constexpr std::array kTermNames = {RF_ATTENTION_TERMS(RF_ROTATION, RF_TERM, RF_TERM, RF_PAIR, RF_TERM)};
#undef RF_ROTATION
#undef RF_TERM
#undef RF_PAIR
inline constexpr size_t kTerms = kTermNames.size();

template <class AnyTerms>
auto tensors_of(AnyTerms& terms) {
#define RF_ROTATION(name, ...) &terms.name.cos, &terms.name.sin,
#define RF_TABLE(name, ...) &terms.name.rows,
#define RF_NUMBERS(name, ...) &terms.name,
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol) &terms.query_name, &terms.key_name,
  return std::array{RF_ATTENTION_TERMS(RF_ROTATION, RF_TABLE, RF_NUMBERS, RF_PAIR, RF_NUMBERS)};
#undef RF_ROTATION
#undef RF_TABLE
#undef RF_NUMBERS
#undef RF_PAIR
}

template <class AnyTerms>
auto tables_of(AnyTerms& terms) {
#define RF_TWO(...) nullptr, nullptr,
#define RF_TABLE(name, ...) &terms.name,
#define RF_ONE(...) nullptr,
  return std::array<decltype(&terms.bias), kTerms>{RF_ATTENTION_TERMS(RF_TWO, RF_TABLE, RF_ONE, RF_TWO, RF_ONE)};
#undef RF_TWO
#undef RF_TABLE
#undef RF_ONE
}

// Sequences packed into a batch of one: sequence i is the queries q[i] .. q[i+1]-1 and the keys k[i] .. k[i+1]-1. A
// query attends only to the keys of its sequence, whose T and S define the window; positions, rotations and masks are
// given by token, as without packing.
struct CuSeqlens {
  at::Tensor q, k;  // int32 or int64 [sequences+1], non-decreasing from 0 to the tokens of a side
  bool defined() const { return q.defined(); }
};

// Which keys a query may attend to, besides a mask: token indices, never positions. With T queries and S keys, query i
// and key j: -left <= j - (i + S - T) <= right, -1 meaning no limit (bottom-right aligned). Causal is right = 0.
struct TokenWindow {
  int64_t left = -1, right = -1;
  // int32 or int64 [B], or [sequences] of packed ones: the number of keys at the start of its entry that every query
  // may attend to, even beyond `right`; with right = 0 the mask of prefix language models (UniLM, arXiv 1905.03197).
  // Undefined: no prefix. Requires a limit on the right and none on the left.
  at::Tensor prefix = {};
};

}  // namespace rf::ops
