// The list of terms (rf/attention_terms.h) as arrays, for code that treats all terms of a kind alike.
#pragma once

#include <cstdint>

#include "rf/attention.h"

namespace rf::core {

// Accumulates one query head's share of the gradients of terms; nullptr: not wanted.
struct HeadTermGradients {
#define RF_SUM(name, ...) float* name = nullptr;
#define RF_PAIR_SUMS(query_name, query_symbol, key_name, key_symbol) RF_SUM(query_name) RF_SUM(key_name)
  RF_ATTENTION_TERMS(RF_NO_TERM, RF_SUM, RF_SUM, RF_PAIR_SUMS, RF_NO_TERM)
#undef RF_SUM
#undef RF_PAIR_SUMS
};

struct RotationTerm {
  enum class Side { kQuery, kKey, kValue };

  const char* name;
  rf_attention_rotation rf_attention_args::*member;
  int64_t rf_attention_args::*heads_member;
  void* rf_attention_grads::*cos_gradient;
  void* rf_attention_grads::*sin_gradient;
  Side side;

  int64_t tokens(const rf_attention_args& x) const { return side == Side::kQuery ? x.queries : x.keys; }
  int64_t width(const rf_attention_args& x) const { return side == Side::kValue ? x.value_dim : x.head_dim; }
  // Heads of the side, and heads with separate rows.
  int64_t all_heads(const rf_attention_args& x) const { return side == Side::kQuery ? x.heads : x.key_heads; }
  int64_t heads(const rf_attention_args& x) const { return x.*heads_member == 0 ? 1 : x.*heads_member; }
  // Elements of cos, and of sin.
  int64_t size(const rf_attention_args& x) const {
    return (x.*member).batch * tokens(x) * heads(x) * (x.*member).pairs;
  }
};

struct TableTerm {
  enum class Width { kHeadDim, kValueDim, kOne, kHeadDimOrOne };

  const char* name;
  rf_attention_table rf_attention_args::*member;
  void* rf_attention_grads::*gradient;
  float* HeadTermGradients::*sum;
  Width width_rule;

  // The required width of the table.
  int64_t width(const rf_attention_args& x) const {
    if (width_rule == Width::kOne || (width_rule == Width::kHeadDimOrOne && (x.*member).width == 1)) return 1;
    return width_rule == Width::kValueDim ? x.value_dim : x.head_dim;
  }
  int64_t rows(const rf_attention_args& x) const { return (x.*member).hi - (x.*member).lo + 1; }
};

// An array [H, rows, width].
struct NumbersTerm {
  enum class Rows { kOne, kPositions };
  enum class Width { kOne, kHeadDim };

  const char* name;
  const void* rf_attention_args::*member;
  void* rf_attention_grads::*gradient;
  float* HeadTermGradients::*sum;
  Rows rows_rule;
  Width width_rule;

  int64_t rows(const rf_attention_args& x) const { return rows_rule == Rows::kOne ? 1 : x.positions; }
  int64_t width(const rf_attention_args& x) const { return width_rule == Width::kOne ? 1 : x.head_dim; }
};

// Numbers [batch, heads, rows, S] that are added to scores.
struct ScoresTerm {
  enum class Rows { kOne, kQueries };

  const char* name;
  rf_attention_scores rf_attention_args::*member;
  void* rf_attention_grads::*gradient;
  Rows rows_rule;

  int64_t rows(const rf_attention_args& x) const { return rows_rule == Rows::kOne ? 1 : x.queries; }
  // Elements of the gradient.
  int64_t size(const rf_attention_args& x) const { return (x.*member).batch * (x.*member).heads * rows(x) * x.keys; }
};

#define RF_ROTATION(name, symbol, side)                   \
  RotationTerm{#name,                                     \
               &rf_attention_args::name,                  \
               &rf_attention_args::name##_rotation_heads, \
               &rf_attention_grads::name##_cos,           \
               &rf_attention_grads::name##_sin,           \
               RotationTerm::Side::k##side},
#define RF_TABLE(name, symbol, width)                                                             \
  TableTerm{#name, &rf_attention_args::name, &rf_attention_grads::name, &HeadTermGradients::name, \
            TableTerm::Width::k##width},
#define RF_ARRAY(name, rows, width)       \
  NumbersTerm{#name,                      \
              &rf_attention_args::name,   \
              &rf_attention_grads::name,  \
              &HeadTermGradients::name,   \
              NumbersTerm::Rows::k##rows, \
              NumbersTerm::Width::k##width},
#define RF_NUMBERS(name, symbol, width) RF_ARRAY(name, One, width)
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol) \
  RF_ARRAY(query_name, Positions, HeadDim) RF_ARRAY(key_name, Positions, HeadDim)
#define RF_SCORES(name, symbol, rows) \
  ScoresTerm{#name, &rf_attention_args::name, &rf_attention_grads::name, ScoresTerm::Rows::k##rows},

inline constexpr RotationTerm kRotationTerms[] = {
    RF_ATTENTION_TERMS(RF_ROTATION, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM)};
inline constexpr TableTerm kTableTerms[] = {
    RF_ATTENTION_TERMS(RF_NO_TERM, RF_TABLE, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM)};
inline constexpr NumbersTerm kNumbersTerms[] = {
    RF_ATTENTION_TERMS(RF_NO_TERM, RF_NO_TERM, RF_NUMBERS, RF_PAIR, RF_NO_TERM)};
inline constexpr ScoresTerm kScoresTerms[] = {
    RF_ATTENTION_TERMS(RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_SCORES)};

#undef RF_ROTATION
#undef RF_TABLE
#undef RF_ARRAY
#undef RF_NUMBERS
#undef RF_PAIR
#undef RF_SCORES

}  // namespace rf::core
