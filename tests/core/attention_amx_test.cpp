// Attention of bfloat16 in AMX tiles: sizes that fill no register, what is no number, and that it is AMX that
// computes. The tests of every instruction set (attention_fused_test.cpp) hold it to the rest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention_case.h"
#include "tolerances.h"

namespace rf::tests {
namespace {

constexpr const char* kAmx = "AVX3_AMX";

class AttentionAmx : public testing::Test {
 protected:
  void SetUp() override {
    if (rf_set_target(kAmx) != RF_OK) GTEST_SKIP() << "AMX IS NOT TESTED HERE: " << rf_last_error();
  }
  void TearDown() override { rf_set_target(nullptr); }
};

AttentionShape shape_of(int64_t queries, int64_t keys, int64_t head_dim, int64_t value_dim) {
  AttentionShape shape;
  shape.dtype = RF_BF16;
  shape.queries = queries, shape.keys = keys, shape.head_dim = head_dim, shape.value_dim = value_dim;
  return shape;
}

// The call in AMX tiles and as pairs of AVX512_BF16, which rounds where AMX does: what differs is the order of sums,
// and the rounding that follows from it. Much closer than the loops, which round nothing.
void expect_pairs(const AttentionShape& shape, uint64_t seed) {
  ASSERT_EQ(rf_set_target("AVX3"), RF_OK);
  const auto pairs = AttentionCase(shape, seed).run_tiles();
  ASSERT_EQ(rf_set_target(kAmx), RF_OK);
  const auto amx = AttentionCase(shape, seed).run_tiles();
  for (size_t result = 0; result < pairs.size(); ++result) {
    double largest = 1e-3;  // with one key the gradients of q and k are 0, and what is there is what rounding left
    for (const double value : pairs[result]) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < pairs[result].size(); ++i) {
      ASSERT_NEAR(amx[result][i], pairs[result][i], kEpsBf16 * largest)
          << "result " << result << '[' << i << "] of seed " << seed << ": " << shape.text();
    }
  }
}

void expect_both(const AttentionShape& shape, uint64_t seed) {
  expect_equal(shape, seed);
  if (!testing::Test::HasFatalFailure()) expect_pairs(shape, seed);
}

TEST_F(AttentionAmx, EverySizeEqualsLoopsAndPairs) {
  uint64_t seed = 0;
  for (int64_t queries = 1; queries <= 17; ++queries) {
    for (const int64_t keys : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 97, 127, 128, 129, 130}) {
      ++seed;
      const auto head_dim = static_cast<int64_t>(seed * 37 % 256 + 1), value_dim = 257 - head_dim;
      expect_both(shape_of(queries, keys, head_dim, value_dim), seed);
      if (HasFatalFailure()) return;
    }
  }
  for (const int64_t head_dim : {1, 15, 16, 17, 33, 64, 80, 255, 256}) {
    expect_both(shape_of(101, 150, head_dim, head_dim), 3);
    if (HasFatalFailure()) return;
  }
}

// The logs of the sums of a call: floats, which show in what order scores were summed.
std::vector<float> log_sums() {
  AttentionCase problem(shape_of(100, 140, 64, 64), 1);
  problem.run_tiles();
  return {problem.tiles().log_sum, problem.tiles().log_sum + 100};
}

// It is the default where there is AMX; its sums have an order of their own, so AVX-512 alone has other bits.
TEST_F(AttentionAmx, IsWhatComputes) {
  const auto amx = log_sums();
  ASSERT_EQ(rf_set_target(nullptr), RF_OK);
  EXPECT_STREQ(rf_target(), kAmx);
  EXPECT_TRUE(log_sums() == amx);
  ASSERT_EQ(rf_set_target("AVX3"), RF_OK);
  EXPECT_STREQ(rf_target(), "AVX3");
  EXPECT_FALSE(log_sums() == amx);
}

TEST_F(AttentionAmx, WhatIsNoNumberStaysInItsRow) {
  AttentionCase problem(shape_of(60, 70, 40, 40), 9);
  rf_attention_args& x = problem.tiles();
  auto* q = static_cast<uint16_t*>(const_cast<void*>(x.q));
  q[5 * x.q_stride_t] = 0x7FC0;
  const auto out = problem.run_tiles()[0];
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i / 40 == 5) << i;
}

}  // namespace
}  // namespace rf::tests
