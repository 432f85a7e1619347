// Attention of queries with listed keys: the loops and the kernels of every instruction set against the formula, and
// the promises and rules of the header.
#include "rf/listed_attention.h"

#include <omp.h>

#include "core/row_case.h"

namespace rf::tests {
namespace {

struct ListedCase {
  int64_t heads, head_dim;
  Rows q, k, v, out;
  std::vector<int64_t> rows, begins, counts;

  // Queries of 0, 1, .. keys, which read rows in any order, some of them several times.
  ListedCase(rf_dtype dtype, int64_t queries, int64_t head_count, int64_t dim, int64_t gap)
      : heads(head_count),
        head_dim(dim),
        q(dtype, queries, head_count * dim, gap),
        k(dtype, 2 * queries + 1, head_count * dim, gap),
        v(k),
        out(q) {
    q.fill(1, 0, 1);
    k.fill(2, 0, 1);
    v.fill(3, 0.5, 1);
    for (int64_t t = 0; t < queries; ++t) {
      begins.push_back(std::ssize(rows));
      counts.push_back(t);
      for (int64_t i = 0; i < t; ++i) rows.push_back((5 * i + 3 * t) % k.rows);
    }
  }

  rf_listed_attention_args args() {
    rf_listed_attention_args a = {};
    a.struct_size = sizeof a;
    a.dtype = q.data.dtype;
    a.queries = q.rows, a.keys = k.rows, a.heads = heads, a.head_dim = head_dim;
    a.q = q.pointer(), a.k = k.pointer(), a.v = v.pointer(), a.out = out.pointer();
    a.q_stride = a.kv_stride = a.out_stride = q.stride;
    a.rows = rows.data(), a.listed = std::ssize(rows), a.begins = begins.data(), a.counts = counts.data();
    a.scale = 0.4;
    return a;
  }
  void run() {
    const rf_listed_attention_args a = args();
    ASSERT_EQ(rf_listed_attention(&a), RF_OK) << rf_last_error();
  }
};

// Of a query and a column; terms: the sum of the absolute terms of its scores, at most.
double formula(const ListedCase& c, int64_t query, int64_t column, double& terms) {
  const int64_t head = column / c.head_dim * c.head_dim;
  double sum = 0, result = 0;
  for (int64_t i = 0; i < c.counts[query]; ++i) {
    const int64_t row = c.rows[c.begins[query] + i];
    double score = 0, absolute = 0;
    for (int64_t d = 0; d < c.head_dim; ++d) {
      const double term = 0.4 * c.q.at(query, head + d) * c.k.at(row, head + d);
      score += term;
      absolute += std::abs(term);
    }
    terms = std::max(terms, absolute);
    sum += std::exp(score);
    result += std::exp(score) * c.v.at(row, column);
  }
  return sum == 0 ? 0 : result / sum;
}

using ListedAttention = TargetTest;

TEST_P(ListedAttention, IsTheFormula) {
  constexpr std::array<int64_t, 4> kShapes[] = {
      {20, 2, 16, 0}, {5, 1, 64, 3}, {40, 4, 6, 1}, {3, 2, 70, 0}, {9, 3, 33, 2}};
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16, RF_F64}) {
    for (const auto& [queries, heads, head_dim, gap] : kShapes) {
      ListedCase c(dtype, queries, heads, head_dim, gap);
      c.run();
      Rows want = c.out.to(RF_F64);
      double terms = 0;
      for (int64_t t = 0; t < queries; ++t) {
        for (int64_t column = 0; column < want.columns; ++column) want.set(t, column, formula(c, t, column, terms));
      }
      const double largest = 4;  // of values
      expect_rows(
          c.out, want, "dtype " + std::to_string(dtype) + " head_dim " + std::to_string(head_dim),
          [&](int64_t, int64_t) { return (1 + kScoreShare * terms) * largest + smallest_of(dtype); }, kAttentionEps);
    }
  }
}

TEST_P(ListedAttention, AQueryHasTheSameBitsAloneAndWithThreads) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F64}) {
    ListedCase c(dtype, 120, 2, 24, 0), alone = c;
    c.run();
    rf_listed_attention_args args = alone.args();
    const int threads = omp_get_max_threads();
    omp_set_num_threads(3);
    for (const int64_t query : {0, 1, 77, 119}) {
      args.queries = 1;
      args.q = static_cast<const char*>(alone.q.pointer()) + query * args.q_stride * bytes_of(dtype);
      args.out = static_cast<char*>(alone.out.pointer()) + query * args.out_stride * bytes_of(dtype);
      args.begins = alone.begins.data() + query, args.counts = alone.counts.data() + query;
      ASSERT_EQ(rf_listed_attention(&args), RF_OK);
      for (int64_t column = 0; column < c.out.columns; ++column)
        ASSERT_EQ(alone.out.at(query, column), c.out.at(query, column));
    }
    ListedCase again(dtype, 120, 2, 24, 0);
    again.run();
    omp_set_num_threads(threads);
    EXPECT_EQ(again.out.data.bytes, c.out.data.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ListedAttention, testing::ValuesIn(instruction_sets_and_ref()),
                         name_of_target);

TEST(ListedAttentionErrors, RulesAreNamed) {
  ListedCase c(RF_F32, 4, 2, 8, 0);
  c.rows[5] = 9;
  static constexpr int64_t kBelow = -1;
  const rf_listed_attention_args args = c.args();
  expect_rules<rf_listed_attention_args>(
      args, rf_listed_attention,
      {{[](auto&) {}, "[listed_attention] rows must be in 0..8, got 9 at 5"},
       {[](auto& a) { a.listed = 3; },
        "[listed_attention] keys of a query must be among the 3 listed, got 3 from 3 for query 3"},
       {[](auto& a) { a.listed = 0, a.begins = &kBelow, a.queries = 1; },
        "[listed_attention] keys of a query must be among the 0 listed, got 0 from -1 for query 0"},
       {[](auto& a) { a.head_dim = 0; }, "[listed_attention] head_dim must be >= 1, got 0"},
       {[](auto& a) { a.queries = -1; }, "[listed_attention] queries must be >= 0, got -1"},
       {[](auto& a) { a.kv_stride = 15; },
        "[listed_attention] kv_stride must be at least heads * head_dim = 16, got 15"},
       {[](auto& a) { a.out = nullptr; }, "[listed_attention] out must not be NULL, got NULL"},
       {[](auto& a) { a.rows = nullptr; }, "[listed_attention] rows must not be NULL, got NULL"},
       {[](auto& a) { a.scale = std::nan(""); }, "[listed_attention] scale must be finite, got nan"}});
}

}  // namespace
}  // namespace rf::tests
