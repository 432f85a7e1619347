// Attention over terms in tiles against the float64 loops: shapes, terms, positions, masks and windows drawn at random,
// and those that a tile's borders make special; every instruction set; bits for any number of threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "attention_case.h"
#include "rope_case.h"

namespace rf::tests {
namespace {

using Positions = AttentionShape::Positions;
using Mask = AttentionShape::Mask;

using AttentionFused = TargetTest;

TEST_P(AttentionFused, RandomCallsEqualTheLoops) {
  for (uint64_t seed = 0; seed < 28 && !HasFatalFailure(); ++seed) {
    expect_equal(seed < 16 ? random_shape(seed) : random_packed_shape(seed - 16), seed % 16);
  }
}

// Each term alone, in a call of several tiles on both sides, with a last tile that is not full.
TEST_P(AttentionFused, EveryTermAloneEqualsTheLoops) {
  AttentionShape plain;
  plain.queries = 101, plain.keys = 150, plain.heads = 2, plain.key_heads = 2, plain.head_dim = plain.value_dim = 24;
  plain.lo = -30, plain.hi = 60;
  // Every dtype, since bfloat16 has products of its own, and every kind of positions: the two do not meet in the
  // kernel.
  constexpr std::pair<rf_dtype, Positions> kKinds[] = {
      {RF_F32, Positions::kShuffled}, {RF_BF16, Positions::kGaps}, {RF_F16, Positions::kSteps}};
  const auto expect = [&](auto change) {
    for (const auto& [dtype, positions] : kKinds) {
      AttentionShape shape = plain;
      shape.dtype = dtype;
      shape.positions = positions;
      change(shape);
      expect_equal(shape, 5);
    }
  };
  expect([](auto&) {});
  expect([](auto& s) { s.value_dim = 80; });  // more than twice as wide as q and k
  expect([](auto& s) { s.query = s.key = true; });
  expect([](auto& s) { s.value = true; });
  expect([](auto& s) { s.query = s.key = s.value = s.rotation_of_heads = true, s.batch = 2, s.heads = 4; });
  expect([](auto& s) {
    s.query = s.key = s.value = s.shared_rotation = s.content_bias = s.key_table = s.query_table = true;
    s.batch = 2, s.heads = 4, s.mask = Mask::kPadding, s.layout = RF_ROPE_HALVES;
  });
  expect([](auto& s) { s.content_bias = true; });
  expect([](auto& s) { s.key_table = s.position_bias = true; });
  expect([](auto& s) { s.query_table = true; });
  expect([](auto& s) { s.value_table = true; });
  expect([](auto& s) { s.bias = true; });
  expect([](auto& s) { s.position_query = true; });
  expect([](auto& s) { s.reset_row = s.reset_col = true; });
  expect([](auto& s) { s.position_query = s.bias = s.reset_row = s.reset_col = true; });
  expect([](auto& s) { s.key_score = true; });
  expect([](auto& s) { s.key_score = s.bias = s.reset_col = true, s.window_right = 0; });
  expect([](auto& s) { s.key_score = s.batch_shares_scores = s.heads_share_scores = true, s.batch = 3, s.heads = 4; });
  expect([](auto& s) { s.pair_bias = true; });
  expect([](auto& s) { s.pair_bias = s.key_score = s.bias = s.reset_row = true, s.window_right = 0; });
  expect([](auto& s) { s.pair_bias = s.batch_shares_scores = true, s.batch = 3, s.mask = Mask::kFull; });
  expect([](auto& s) { s.pair_bias = s.heads_share_scores = true, s.batch = 2, s.heads = 4; });
  expect([](auto& s) {
    s.pair_bias = s.batch_shares_scores = s.heads_share_scores = s.content_bias = true, s.batch = 3, s.heads = 4;
  });
  expect([](auto& s) { s.window_right = 0; });
  expect([](auto& s) { s.window_left = s.window_right = 20; });
  expect([](auto& s) { s.window_right = 0, s.prefix = {71}; });
  expect([](auto& s) { s.window_right = 3, s.batch = 2, s.prefix = {0, 149}, s.mask = Mask::kPadding; });
  expect([](auto& s) { s.score_cap = 0.3, s.query = s.key = true; });
  expect([](auto& s) { s.score_cap = 2, s.bias = true, s.window_right = 0, s.mask = Mask::kPadding; });
  expect([](auto& s) { s.mask = Mask::kPadding; });
  expect([](auto& s) { s.mask = Mask::kFull; });
}

// Long enough for several groups of query tiles, and for distances on both sides of every table.
TEST_P(AttentionFused, LongSequencesEqualTheLoops) {
  AttentionShape shape;
  shape.queries = 500, shape.keys = 450, shape.head_dim = shape.value_dim = 16;
  shape.query = shape.key = shape.key_table = shape.query_table = shape.value_table = shape.bias = true;
  shape.lo = -70, shape.hi = 90;
  AttentionShape causal = shape;
  causal.window_right = 0;
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16}) {
    shape.dtype = causal.dtype = dtype;
    expect_equal(shape, 6);
    expect_equal(causal, 7);
  }
}

// Keys or values as a cache stores them, [B, S, heads, row], and the same numbers in the type of the call.
struct Cached {
  Cached(const rf_attention_args& x, int64_t width, rf_cache_type type, uint64_t seed)
      : row_bytes(type == RF_CACHE_INT8 ? width + 4 : 2 * width), rows(x.batch * x.keys * x.key_heads) {
    std::mt19937_64 generator(seed);
    numbers = std::make_unique<Elements>(x.dtype, rows * width);
    bytes.resize(static_cast<size_t>(rows * row_bytes));
    for (int64_t r = 0; r < rows; ++r) {
      const float scale = std::ldexp(1.0f, -5 - static_cast<int>(generator() % 4));  // exact in every type
      for (int64_t i = 0; i < width; ++i) {
        const int whole = static_cast<int>(generator() % 255) - 127;
        const float number = static_cast<float>(whole) * scale;
        numbers->set(r * width + i, number);
        if (type == RF_CACHE_INT8) {
          bytes[r * row_bytes + i] = static_cast<char>(whole);
        } else {
          ref::store(RF_BF16, bytes.data(), r * width + i, number);
        }
      }
      if (type == RF_CACHE_INT8) std::memcpy(bytes.data() + r * row_bytes + width, &scale, sizeof scale);
    }
  }
  int64_t row_bytes, rows;
  std::unique_ptr<Elements> numbers;
  std::vector<char> bytes;
};

// Bit by bit: a tile of a cache becomes the floats of its numbers, whatever the terms, windows and packing.
TEST_P(AttentionFused, CachesEqualTheirNumbers) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const AttentionShape shape = seed % 3 == 0 ? random_packed_shape(seed) : random_shape(seed);
    AttentionCase problem(shape, seed);
    rf_attention_args& x = problem.tiles();
    const rf_cache_type type = seed % 2 == 0 ? RF_CACHE_INT8 : RF_CACHE_BF16;
    const Cached keys(x, x.head_dim, type, seed), values(x, x.value_dim, type, seed + 1);
    const auto out_of = [&](const void* k, const void* v, int64_t k_row, int64_t v_row) {
      x.k = k, x.k_stride_h = k_row, x.k_stride_t = x.key_heads * k_row, x.k_stride_b = x.keys * x.k_stride_t;
      x.v = v, x.v_stride_h = v_row, x.v_stride_t = x.key_heads * v_row, x.v_stride_b = x.keys * x.v_stride_t;
      Elements out(x.dtype, x.batch * x.queries * x.heads * x.value_dim);
      x.out = out.bytes.data(), x.out_stride_h = x.value_dim, x.out_stride_t = x.heads * x.value_dim;
      x.out_stride_b = x.queries * x.out_stride_t;
      EXPECT_EQ(rf_attention_forward(&x), RF_OK) << rf_last_error() << shape.text();
      return out.bytes;
    };
    const auto expected = out_of(keys.numbers->bytes.data(), values.numbers->bytes.data(), x.head_dim, x.value_dim);
    const int64_t element = type == RF_CACHE_INT8 ? 1 : 2;
    x.cache_type = type;
    EXPECT_EQ(out_of(keys.bytes.data(), values.bytes.data(), keys.row_bytes / element, values.row_bytes / element),
              expected)
        << shape.text();
  }
}

AttentionShape packed_shape() {
  AttentionShape shape;
  shape.heads = 4, shape.key_heads = 2, shape.head_dim = shape.value_dim = 24;
  shape.query = shape.key = shape.value = shape.content_bias = true;
  shape.key_table = shape.query_table = shape.value_table = shape.bias = shape.position_query = shape.reset_col = true;
  shape.lo = -20, shape.hi = 30;
  shape.query_ends = {0, 70, 70, 171, 174, 180}, shape.key_ends = {0, 90, 97, 200, 200, 260};
  shape.queries = 180, shape.keys = 260;
  shape.window_left = 80, shape.window_right = 3, shape.mask = Mask::kFull;
  return shape;
}

// Bit by bit: outputs, logs of sums and the gradients of data of each sequence, when those before it are one sequence,
// and those after it another.
TEST_P(AttentionFused, PackedNeighboursDoNotChangeBits) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16}) {
    AttentionShape shape = packed_shape();
    shape.dtype = dtype, shape.key_score = shape.pair_bias = true;
    AttentionCase problem(shape, 3);
    const auto packed = problem.run_tiles();
    rf_attention_args& x = problem.tiles();
    const std::vector<float> log_sums(x.log_sum, x.log_sum + x.heads * x.queries);
    for (size_t i = 0; i + 1 < shape.query_ends.size(); ++i) {
      const int64_t query_ends[] = {0, shape.query_ends[i], shape.query_ends[i + 1], x.queries};
      const int64_t key_ends[] = {0, shape.key_ends[i], shape.key_ends[i + 1], x.keys};
      x.cu_seqlens_q = query_ends, x.cu_seqlens_k = key_ends, x.sequences = 3;
      const auto other = problem.run_tiles();
      for (size_t result = 0; result < 4; ++result) {  // out and the gradients of q, k and v
        const int64_t* ends = result < 2 ? query_ends : key_ends;
        const int64_t width = static_cast<int64_t>(packed[result].size()) / ends[3];
        const auto first = other[result].begin() + ends[1] * width, last = other[result].begin() + ends[2] * width;
        EXPECT_TRUE(std::equal(first, last, packed[result].begin() + ends[1] * width)) << i << " result " << result;
      }
      for (int64_t h = 0; h < x.heads; ++h) {
        const float* own = x.log_sum + h * x.queries;
        EXPECT_TRUE(
            std::equal(own + query_ends[1], own + query_ends[2], log_sums.begin() + h * x.queries + query_ends[1]))
            << i << " head " << h;
      }
    }
  }
}

// Sequences of one length are a batch, for dropout and the gradients of terms too.
TEST_P(AttentionFused, SequencesOfOneLengthAreABatch) {
  AttentionShape shape = packed_shape();
  shape.query_ends = {0, 50, 100, 150, 200, 250}, shape.key_ends = {0, 70, 140, 210, 280, 350};
  shape.queries = 250, shape.keys = 350, shape.mask = Mask::kNone, shape.dropout = 0.2;
  AttentionCase problem(shape, 3);
  const auto packed = problem.run_tiles();
  rf_attention_args& x = problem.tiles();
  x.cu_seqlens_q = x.cu_seqlens_k = nullptr;
  x.batch = 5, x.queries = 50, x.keys = 70;
  x.query.batch = x.key.batch = x.value.batch = 5;
  x.query_position_stride_b = 50, x.key_position_stride_b = 70;
  x.q_stride_b = 50 * x.q_stride_t, x.out_stride_b = problem.tile_grads().out_stride_b = 50 * x.out_stride_t;
  x.k_stride_b = 70 * x.k_stride_t, x.v_stride_b = 70 * x.v_stride_t;
  EXPECT_TRUE(problem.run_tiles() == packed);
}

// Tiles have room for more queries and keys than a call has; what is there is NaN at first (allocation_count.cpp).
TEST_P(AttentionFused, WhatACallDoesNotHaveIsNotRead) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16}) {
    for (const int64_t tokens : {1, 29, 63, 97}) {
      AttentionShape shape;
      shape.dtype = dtype, shape.queries = shape.keys = tokens, shape.dropout = 0.25,
      shape.key_score = shape.pair_bias = true;
      for (const std::vector<double>& result : AttentionCase(shape, 3).run_tiles()) {
        EXPECT_TRUE(std::all_of(result.begin(), result.end(), [](double x) { return std::isfinite(x); }))
            << shape.text();
      }
    }
  }
}

// change: of the gradients that are wanted.
void expect_bits_of_any_threads(const AttentionShape& shape, std::initializer_list<int> several,
                                void (*change)(rf_attention_grads&)) {
  const auto run = [&](int threads) {
    omp_set_num_threads(threads);
    AttentionCase problem(shape, 8);
    change(problem.tile_grads());
    return problem.run_tiles();
  };
  const auto one = run(1);
  for (const int threads : several) EXPECT_TRUE(run(threads) == one) << shape.text() << " threads " << threads;
}

// Numbers of pairs and keys that entries or heads share are summed in one order, with and without other terms beside
// them.
TEST_P(AttentionFused, BitsDoNotDependOnThreads) {
  std::vector<AttentionShape> shapes = {packed_shape()};
  AttentionShape shape;
  shape.batch = 3, shape.queries = 430, shape.keys = 90, shape.heads = 4, shape.key_heads = 2;
  shape.head_dim = shape.value_dim = 16;
  shape.query = shape.key = shape.key_table = shape.query_table = shape.value_table = shape.bias = true;
  shape.lo = -20, shape.hi = 30, shape.shared_tables = true, shape.mask = Mask::kPadding;
  shape.key_score = shape.batch_shares_scores = true;
  shapes.push_back(shape);
  shape.positions = Positions::kGaps;
  shapes.push_back(shape);
  shape = {};
  shape.batch = 5, shape.queries = 150, shape.keys = 330, shape.heads = 4, shape.key_heads = 2, shape.pair_bias = true;
  for (const auto& [batch_shares, heads_share, others] :
       {std::array{false, true, false}, {true, false, true}, {true, true, false}, {false, false, true}}) {
    shape.batch_shares_scores = batch_shares, shape.heads_share_scores = heads_share, shape.content_bias = others;
    shapes.push_back(shape);
  }
  for (const AttentionShape& own : shapes) expect_bits_of_any_threads(own, {2, 8}, [](rf_attention_grads&) {});
}

// More threads than key heads: these share the keys of one. Of the terms, only the gradients of kappa and P are wanted,
// whose sums do not meet.
TEST_P(AttentionFused, BitsDoNotDependOnThreadsThatShareAHead) {
  AttentionShape shape;
  shape.queries = 410, shape.keys = 400, shape.heads = 2, shape.head_dim = shape.value_dim = 16;
  shape.query = shape.key = shape.value = shape.content_bias = shape.position_query = shape.reset_row =
      shape.reset_col = true;
  shape.key_table = shape.query_table = shape.value_table = shape.bias = shape.position_bias = true;
  shape.lo = -150, shape.hi = 40, shape.key_score = shape.pair_bias = shape.heads_share_scores = true;
  AttentionShape packed = shape;
  packed.query_ends = {0, 10, 10, 410}, packed.key_ends = {0, 100, 130, 400};
  AttentionShape causal = shape;
  causal.window_right = 0, causal.positions = Positions::kGaps, causal.mask = Mask::kPadding;
  for (const rf_dtype dtype : {RF_F32, RF_BF16}) {
    for (AttentionShape own : {shape, packed, causal}) {
      own.dtype = dtype;
      expect_bits_of_any_threads(own, {2, 7}, [](rf_attention_grads& g) {
        g.key_table = g.query_table = g.value_table = g.bias = g.content_bias = g.position_bias = nullptr;
        g.position_query = g.position_key = g.reset_row = g.reset_col = nullptr;
      });
    }
  }
}

// A query that is no number, or whose score is +infinity, spoils its own output alone; a score of -infinity is a key
// left out, and a query that has only such scores is one without keys.
TEST_P(AttentionFused, WhatIsNoNumberStaysInItsRow) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  AttentionShape shape;
  shape.queries = 60, shape.keys = 70, shape.bias = true;
  shape.lo = -80, shape.hi = 80;
  AttentionCase problem(shape, 9);
  rf_attention_args& x = problem.tiles();
  auto* q = static_cast<float*>(const_cast<void*>(x.q));
  q[5 * x.q_stride_t] = std::numeric_limits<float>::quiet_NaN();
  auto* bias = static_cast<float*>(const_cast<void*>(x.bias.rows));
  bias[59 + 80] = kInfinity;  // query 59 with key 0
  for (int64_t distance = -69; distance <= -10; ++distance) bias[distance + 80] = -kInfinity;
  ASSERT_EQ(rf_attention_forward(&x), RF_OK) << rf_last_error();
  const auto* out = static_cast<const float*>(x.out);
  for (int64_t t = 0; t < shape.queries; ++t) {
    EXPECT_EQ(std::isnan(out[t * x.out_stride_t]), t == 5 || t == 59) << t;
  }
  std::fill_n(bias, 161, -kInfinity);
  ASSERT_EQ(rf_attention_forward(&x), RF_OK) << rf_last_error();
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(x.log_sum[0], -kInfinity);
}

// A key whose number is -infinity is left out; one that is no number spoils the queries that may attend to it, and is
// not read behind a mask.
TEST_P(AttentionFused, AKeyScoreThatIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  AttentionShape shape;
  shape.queries = shape.keys = 70, shape.window_right = 0, shape.key_score = true, shape.mask = Mask::kPadding;
  AttentionCase problem(shape, 9);
  rf_attention_args& x = problem.tiles();
  auto* mask = const_cast<uint8_t*>(x.mask);
  std::fill_n(mask, 70, uint8_t{1});
  auto* kappa = static_cast<float*>(const_cast<void*>(x.key_score.numbers));
  kappa[3] = -kInfinity;
  const auto left_out = problem.run_tiles();
  mask[3] = 0, kappa[3] = std::numeric_limits<float>::quiet_NaN();
  const auto masked = problem.run_tiles();
  for (size_t i = 0; i < masked[0].size(); ++i) ASSERT_EQ(masked[0][i], left_out[0][i]) << i;
  for (const auto& result : masked) {
    EXPECT_TRUE(std::all_of(result.begin(), result.end(), [](double value) { return std::isfinite(value); }));
  }
  mask[3] = 1;
  ASSERT_EQ(rf_attention_forward(&x), RF_OK) << rf_last_error();
  const auto* out = static_cast<const float*>(x.out);
  for (int64_t t = 0; t < 70; ++t) EXPECT_EQ(std::isnan(out[t * x.out_stride_t]), t >= 3) << t;
}

// Around the numbers of a call lie some that are none: rows of P are read to their ends, and its gradient is written
// there, and not beyond.
TEST_P(AttentionFused, PairsOutsideTheCallAreNotTouched) {
  constexpr int64_t kGap = 5;
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 1}, {1, 131}, {49, 67}, {50, 62}, {3, 130}}) {
    AttentionShape shape;
    shape.queries = queries, shape.keys = keys, shape.pair_bias = true;
    AttentionCase problem(shape, 4);
    rf_attention_args& x = problem.tiles();
    rf_attention_grads& grads = problem.tile_grads();
    const int64_t row = keys + kGap;
    std::vector<float> given(static_cast<size_t>(2 * kGap + queries * row), std::numeric_limits<float>::quiet_NaN());
    std::vector<float> written(static_cast<size_t>(2 * kGap + queries * keys), 77.0f);
    for (int64_t t = 0; t < queries; ++t) {
      for (int64_t s = 0; s < keys; ++s) given[kGap + t * row + s] = static_cast<float>((t + 3 * s) % 7) / 4;
    }
    x.pair_bias.numbers = given.data() + kGap, x.pair_bias.stride_t = row;
    grads.pair_bias = written.data() + kGap;
    const auto values = problem.run_tiles();
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(std::all_of(values[i].begin(), values[i].end(), [](double v) { return std::isfinite(v); })) << i;
    }
    for (int64_t i = 0; i < kGap; ++i) {
      EXPECT_EQ(written[i], 77);
      EXPECT_EQ(written[written.size() - 1 - static_cast<size_t>(i)], 77);
    }
    for (size_t i = kGap; i + kGap < written.size(); ++i) EXPECT_TRUE(std::isfinite(written[i]) && written[i] != 77);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionFused, testing::ValuesIn(instruction_sets()), name_of_target);

}  // namespace
}  // namespace rf::tests
