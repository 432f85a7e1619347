// Attention over terms (rf/attention.h): its rules, and the choice between the float64 loops and the tiles. Each broken
// rule throws InvalidArgument, a dtype without an implementation NotImplemented.
#include "rf/attention.h"

#include <cmath>
#include <string>

#include "attention/fused.h"
#include "attention/problem.h"
#include "attention/terms.h"
#include "common/arguments.h"
#include "common/element.h"
#include "common/reference.h"
#include "common/target.h"

namespace rf::core {
namespace {

constexpr const char* kWhere = "attention";
constexpr int64_t kMaxPosition = int64_t{1} << 53;

void check_kernel(const rf_attention_args& x) {
  if (x.dtype == RF_F64) {
    if (x.dropout > 0) throw NotImplemented("[attention] dropout must be 0 with dtype RF_F64");
    if (x.cache_type != RF_CACHE_SAME)
      throw NotImplemented("[attention] cache_type must be RF_CACHE_SAME with dtype RF_F64");
    return;
  }
  if (use_reference()) {
    throw NotImplemented("[attention] dtype must be RF_F64 for the reference loops, which RF_KERNEL=ref asks for");
  }
}

void check_extents(const rf_attention_args& x) {
  check_at_least(kWhere, 0, {{x.batch, "batch"}, {x.queries, "queries"}, {x.keys, "keys"}, {x.heads, "heads"}});
  check_at_least(kWhere, 1, {{x.key_heads, "key_heads"}, {x.head_dim, "head_dim"}, {x.value_dim, "value_dim"}});
  require(x.heads % x.key_heads == 0, kWhere, "heads must be a multiple of key_heads = ", x.key_heads, ", got ",
          x.heads);
  check_size(kWhere, {x.batch, x.queries, x.heads, x.head_dim}, "q");
  check_size(kWhere, {x.batch, x.keys, x.heads, x.head_dim}, "k");
  check_size(kWhere, {x.batch, x.keys, x.heads, x.value_dim}, "v");
  check_size(kWhere, {x.batch, x.queries, x.heads, x.value_dim}, "out");
}

void check_pointers(const rf_attention_args& x) {
  const int64_t queries = x.batch * x.queries * x.heads, keys = x.batch * x.keys * x.heads;
  const int64_t bytes = element_bytes(x.dtype);
  check_pointer(kWhere, x.q, queries, bytes, "q");
  check_pointer(kWhere, x.k, keys, cache_element_bytes(x), "k");
  check_pointer(kWhere, x.v, keys, cache_element_bytes(x), "v");
  check_pointer(kWhere, x.query_positions, queries, sizeof(int64_t), "query_positions");
  check_pointer(kWhere, x.key_positions, keys, sizeof(int64_t), "key_positions");
  check_reach(kWhere, {{x.batch, x.q_stride_b}, {x.queries, x.q_stride_t}, {x.heads, x.q_stride_h}}, "q");
  check_reach(kWhere, {{x.batch, x.k_stride_b}, {x.keys, x.k_stride_t}, {x.key_heads, x.k_stride_h}}, "k");
  check_reach(kWhere, {{x.batch, x.v_stride_b}, {x.keys, x.v_stride_t}, {x.key_heads, x.v_stride_h}}, "v");
  check_reach(kWhere, {{x.batch, x.out_stride_b}, {x.queries, x.out_stride_t}, {x.heads, x.out_stride_h}}, "out");
  check_reach(
      kWhere,
      {{x.batch, x.mask_stride_b}, {x.heads, x.mask_stride_h}, {x.queries, x.mask_stride_t}, {x.keys, x.mask_stride_s}},
      "mask");
}

void check_positions(const rf_attention_args& x, const int64_t* positions, int64_t stride_b, int64_t tokens,
                     const char* name) {
  require(stride_b >= 0, kWhere, name, "_stride_b must be >= 0, got ", stride_b);
  if (x.heads == 0) return;
  const bool bounded = x.position_query != nullptr;
  for (int64_t b = 0; b < x.batch; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t p = positions[b * stride_b + t];
      require(p >= -kMaxPosition && p <= kMaxPosition, kWhere, name, " must be within 2^53, got ", p);
      require(!bounded || (p >= 0 && p < x.positions), kWhere, name, " must be in 0..", x.positions - 1,
              ", the rows of position_query and position_key, got ", p);
    }
  }
}

void check_table(const rf_attention_args& x, const TableTerm& term) {
  const rf_attention_table& table = x.*term.member;
  if (table.rows == nullptr) return;
  require(table.lo <= table.hi, kWhere, term.name, ".lo must be <= hi = ", table.hi, ", got ", table.lo);
  require(table.lo >= -kMaxPosition && table.hi <= kMaxPosition, kWhere, term.name,
          ".lo and hi must be within 2^53, got ", table.lo, " and ", table.hi);
  require(table.heads == x.heads || table.heads == 1, kWhere, term.name, ".heads must be 1 or heads = ", x.heads,
          ", got ", table.heads);
  require(table.width == term.width(x), kWhere, term.name, ".width must be ", term.width(x), ", got ", table.width);
  check_pointer(kWhere, table.rows, 0, row_element_bytes(x.dtype), term.name);
  check_size(kWhere, {table.heads, term.rows(x), table.width}, term.name);
}

void check_pair(const rf_attention_args& x, const void* of_queries, const char* query_name, const void* of_keys,
                const char* key_name) {
  require((of_queries == nullptr) == (of_keys == nullptr), kWhere, query_name, " and ", key_name,
          " must be given together, got ", of_queries == nullptr ? key_name : query_name, " alone");
  if (of_queries == nullptr) return;
  require(x.positions >= 1, kWhere, "positions must be >= 1 with ", query_name, " and ", key_name, ", got ",
          x.positions);
  check_size(kWhere, {x.heads, x.positions, x.head_dim}, query_name);
}

void check_scores(const rf_attention_args& x, const ScoresTerm& term) {
  const rf_attention_scores& scores = x.*term.member;
  if (scores.numbers == nullptr) return;
  require(scores.batch == x.batch || scores.batch == 1, kWhere, term.name, ".batch must be 1 or batch = ", x.batch,
          ", got ", scores.batch);
  require(scores.heads == x.heads || scores.heads == 1, kWhere, term.name, ".heads must be 1 or heads = ", x.heads,
          ", got ", scores.heads);
  require(term.rows_rule == ScoresTerm::Rows::kQueries || scores.stride_t == 0, kWhere, term.name,
          ".stride_t must be 0, got ", scores.stride_t);
  check_pointer(kWhere, scores.numbers, 0, row_element_bytes(x.dtype), term.name);
  check_size(kWhere, {scores.batch, scores.heads, term.rows(x), x.keys}, term.name);
  check_reach(
      kWhere,
      {{scores.batch, scores.stride_b}, {scores.heads, scores.stride_h}, {term.rows(x), scores.stride_t}, {x.keys, 1}},
      term.name);
}

void check_terms(const rf_attention_args& x) {
  for (const RotationTerm& term : kRotationTerms) {
    check_rotation(kWhere, {x.dtype, x.layout, x.batch, term.width(x)}, x.*term.member, term.name);
    if ((x.*term.member).cos == nullptr) continue;
    const int64_t heads = x.*term.heads_member, all = term.all_heads(x);
    require(heads == 0 || heads == 1 || heads == all, kWhere, term.name, "_rotation_heads must be 0, 1 or ", all,
            ", got ", heads);
    check_size(kWhere, {(x.*term.member).batch, term.tokens(x), term.heads(x), (x.*term.member).pairs}, term.name);
  }
  for (const TableTerm& term : kTableTerms) check_table(x, term);
#define RF_CHECK_PAIR(query_name, query_symbol, key_name, key_symbol) \
  check_pair(x, x.query_name, #query_name, x.key_name, #key_name);
  RF_ATTENTION_TERMS(RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_CHECK_PAIR, RF_NO_TERM)
#undef RF_CHECK_PAIR
  for (const NumbersTerm& term : kNumbersTerms) {
    check_pointer(kWhere, x.*term.member, 0, row_element_bytes(x.dtype), term.name);
  }
  for (const ScoresTerm& term : kScoresTerms) check_scores(x, term);
  require(std::isfinite(x.scale), kWhere, "scale must be finite, got ", x.scale);
}

// A limit of a side that window does not name must be 0, so that a struct filled for other rules is not misread.
void check_limit(const rf_attention_args& x, uint32_t side, int64_t limit, const char* name) {
  const bool limited = (x.window & side) != 0;
  require(limit >= 0, kWhere, name, " must be >= 0, got ", limit);
  require(limited || limit == 0, kWhere, name, " must be 0 unless window limits that side, got ", limit);
}

void check_prefix(const rf_attention_args& x) {
  if (x.prefix == nullptr) return;
  require(x.window == RF_WINDOW_RIGHT, kWhere, "prefix needs a window that is limited on the right side alone, got ",
          x.window == 0 ? "no window" : "a limit on the left");
  const int64_t entries = x.cu_seqlens_q == nullptr ? x.batch : x.sequences;
  for (int64_t i = 0; i < entries; ++i) {
    require(x.prefix[i] >= 0, kWhere, "prefix must be >= 0, got ", x.prefix[i], " at ", i);
  }
}

void check_absent(const void* term, const void* gradient, const std::string& name) {
  require(term != nullptr || gradient == nullptr, kWhere, "the gradient of ", name,
          " must be NULL where the term is absent, got an array");
}

// Which rules to check, forward and backward: the rules of the equation alone, or also the limits of the kernels here.
enum class CheckedFor { kEquation, kKernels };

void check_attention(const rf_attention_args& x, CheckedFor use) {
  check_dtype(kWhere, x.dtype);
  check_dropout(kWhere, x.dropout, "dropout");
  require(x.cache_type <= RF_CACHE_INT8, kWhere, "cache_type must be in 0..2, got ", static_cast<int>(x.cache_type));
  if (use == CheckedFor::kKernels) check_kernel(x);
  check_extents(x);
  if (use == CheckedFor::kKernels) {
    require(x.value_dim == x.head_dim || (x.value.cos == nullptr && x.value_table.rows == nullptr), kWhere,
            "value_dim must be head_dim = ", x.head_dim, " where values have a rotation or a table, got ", x.value_dim);
  }
  check_pointers(x);
  check_terms(x);
  check_packing(kWhere, packing_of(x));
  check_positions(x, x.query_positions, x.query_position_stride_b, x.queries, "query_positions");
  check_positions(x, x.key_positions, x.key_position_stride_b, x.keys, "key_positions");
  require(x.window <= (RF_WINDOW_LEFT | RF_WINDOW_RIGHT), kWhere,
          "window must be 0, RF_WINDOW_LEFT, RF_WINDOW_RIGHT or their sum, got ", x.window);
  check_limit(x, RF_WINDOW_LEFT, x.window_left, "window_left");
  check_limit(x, RF_WINDOW_RIGHT, x.window_right, "window_right");
  check_prefix(x);
  require(std::isfinite(x.score_cap) && x.score_cap >= 0, kWhere, "score_cap must be finite and >= 0, got ",
          x.score_cap);
}

void check_attention_out(const rf_attention_args& x) {
  check_pointer(kWhere, x.out, x.batch * x.queries * x.heads, element_bytes(x.dtype), "out");
}

void check_attention_grads(const rf_attention_args& x, const rf_attention_grads& grads) {
  const int64_t queries = x.batch * x.queries * x.heads;
  check_pointer(kWhere, grads.out, queries, element_bytes(x.dtype), "grads.out");
  if (x.dtype != RF_F64) {
    check_pointer(kWhere, x.out, queries, element_bytes(x.dtype), "out");
    check_pointer(kWhere, x.log_sum, queries, sizeof(float), "log_sum");
  }
  for (const RotationTerm& term : kRotationTerms) {
    check_absent((x.*term.member).cos, grads.*term.cos_gradient, std::string(term.name) + ".cos");
    check_absent((x.*term.member).sin, grads.*term.sin_gradient, std::string(term.name) + ".sin");
  }
  for (const TableTerm& term : kTableTerms) check_absent((x.*term.member).rows, grads.*term.gradient, term.name);
  for (const NumbersTerm& term : kNumbersTerms) check_absent(x.*term.member, grads.*term.gradient, term.name);
  for (const ScoresTerm& term : kScoresTerms) check_absent((x.*term.member).numbers, grads.*term.gradient, term.name);
}

void forward(const rf_attention_args& x) {
  check_attention(x, CheckedFor::kKernels);
  check_attention_out(x);
  x.dtype == RF_F64 ? ref::attention(x) : attention_fused(x);
}

void backward(const rf_attention_args& x, const rf_attention_grads& grads) {
  check_attention(x, CheckedFor::kKernels);
  if (x.score_cap > 0) throw NotImplemented("[attention] score_cap must be 0 in the backward");
  if (x.cache_type != RF_CACHE_SAME)
    throw NotImplemented("[attention] cache_type must be RF_CACHE_SAME in the backward");
  check_attention_grads(x, grads);
  x.dtype == RF_F64 ? ref::attention_backward(x, grads) : attention_fused_backward(x, grads);
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_attention_check(const rf_attention_args* args) {
  return rf::core::with_arguments("attention", args, [](const rf_attention_args& x) {
    rf::core::check_attention(x, rf::core::CheckedFor::kEquation);
  });
}

extern "C" rf_status rf_attention_forward(const rf_attention_args* args) {
  return rf::core::with_arguments("attention", args, rf::core::forward);
}

extern "C" rf_status rf_attention_backward(const rf_attention_args* args, const rf_attention_grads* grads) {
  return rf::core::with_arguments("attention", args, grads, rf::core::backward);
}
