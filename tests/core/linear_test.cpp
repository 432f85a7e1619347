// The linear layer on every instruction set against float64 loops, and the promises of the header
// (strides, empty extents, threads, packed weights, what computes a call).
#include "rf/linear.h"

#include <omp.h>

#include <thread>

#include "core/linear_layer_case.h"
#include "core/row_case.h"

namespace rf::tests {
namespace {

class Linear : public TargetTest {};
class LinearTiles : public Linear {};  // what the loops of the reference have not

// Rows, columns and depths on either side of a tile's, a block's and a chunk's; gaps between rows; sums over nothing.
constexpr std::array<int64_t, 4> kExtents[] = {{1, 1, 1, 0},     {3, 5, 7, 0},     {16, 31, 64, 0},   {5, 528, 64, 0},
                                               {70, 65, 129, 0}, {67, 600, 70, 0}, {1060, 20, 33, 0}, {37, 45, 83, 5},
                                               {0, 5, 3, 0},     {5, 0, 3, 0},     {5, 3, 0, 0}};

TEST_P(Linear, EqualsFloat64) {
  for (const rf_dtype dtype : kLayerTypes) {
    for (const auto& [rows, in, out, gap] : kExtents) {
      LinearLayerCase linear(dtype, rows, in, out, gap);
      linear.run();
      expect_right(linear, linear.text());
    }
  }
}

// A weight that bfloat16 has is read as it is; one that it has not, at most rounded to it.
TEST_P(Linear, TakesFloat32WeightsBesideNarrowArrays) {
  for (const rf_dtype dtype : {RF_BF16, RF_F16}) {
    for (const auto& [rows, in, out, gap] : std::initializer_list<std::array<int64_t, 4>>{
             {1, 1, 1, 0}, {15, 16, 17, 3}, {70, 65, 129, 0}, {19, 600, 70, 1}}) {
      LinearLayerCase exact(dtype, RF_F32, rows, in, out, gap);
      Elements rounded(RF_BF16, exact.weight.count());
      for (int64_t i = 0; i < rounded.count(); ++i) {
        rounded.set(i, exact.weight.at(i));
        exact.weight.set(i, rounded.at(i));
      }
      exact.run();
      expect_right(exact, "float32 weights, " + exact.text());
      LinearLayerCase any(dtype, RF_F32, rows, in, out, gap);
      any.run();
      expect_right(any, "float32 weights, " + any.text(), kEpsBf16 / 2);
    }
  }
}

// More columns than a task, and than a group that is packed together.
TEST_P(LinearTiles, EqualsFloat64OverManyColumns) {
  LinearLayerCase run(RF_BF16, 18, 3, 1200), group(RF_F32, 1, 1100, 3700);
  for (LinearLayerCase* linear : {&run, &group}) {
    linear->run();
    expect_right(*linear, linear->text());
  }
}

// gelu of the float64 sum: its slope is at most kGeluSlope, and its own error as in rf_gelu.
TEST_P(Linear, ActivatesBeforeRounding) {
  for (const rf_dtype dtype : kLayerTypes) {
    for (const rf_linear_activation activation : {RF_LINEAR_GELU_ERF, RF_LINEAR_GELU_TANH}) {
      LinearLayerCase linear(dtype, 70, 33, 300);
      LinearLayerCase sums = linear.in_float64(LinearLayerCase::As::kValues), want = sums;
      LinearLayerCase magnitudes = linear.in_float64(LinearLayerCase::As::kMagnitudes);
      rf_linear_args call = linear.args(), want_call = want.args();
      call.activation = want_call.activation = activation;
      ASSERT_EQ(rf_linear_forward(&call), RF_OK) << rf_last_error();
      ref::linear(want_call);
      ref::linear(sums.args());
      ref::linear(magnitudes.args());
      for (int64_t i = 0; i < linear.y.count(); ++i) {
        const double y = want.y.at(i), t = sums.y.at(i);
        const double stored = dtype == RF_F32 ? 0 : eps_of(dtype) * std::abs(y);
        const double error = kGeluSlope * kLinearEps * magnitudes.y.at(i) + kGeluEps * std::abs(y) * (1 + t * t);
        ASSERT_NEAR(linear.y.at(i), y, kEpsF32 * error + stored + smallest_of(dtype)) << linear.text();
      }
    }
  }
}

TEST_P(LinearTiles, ThreadsGiveTheSameBits) {
  for (const rf_dtype dtype : kLayerTypes) {
    for (const auto& [rows, in, out] : std::initializer_list<std::array<int64_t, 3>>{{130, 600, 200}, {1100, 8, 130}}) {
      LinearLayerCase one(dtype, rows, in, out), several = one;
      omp_set_num_threads(1);
      one.run();
      for (const int threads : {2, 5}) {
        omp_set_num_threads(threads);
        several.run();
        const std::string what = one.text() + " threads " + std::to_string(threads);
        EXPECT_EQ(one.y.bytes, several.y.bytes) << what;
        EXPECT_EQ(one.dx.bytes, several.dx.bytes) << what;
        EXPECT_EQ(one.dweight.bytes, several.dweight.bytes) << what;
        EXPECT_EQ(one.dbias.bytes, several.dbias.bytes) << what;
      }
    }
  }
}

// NaN and infinity of a row stay in that row, those of a weight in its column: nothing is padded by multiplication with
// 0.
TEST_P(Linear, KeepsNanAndInfinityWhereTheyAre) {
  for (const rf_dtype dtype : kLayerTypes) {
    LinearLayerCase linear(dtype, 20, 30, 40);
    linear.x.set(3 * 30 + 29, std::numeric_limits<double>::quiet_NaN());
    linear.weight.set(39 * 30 + 29, std::numeric_limits<double>::infinity());
    const rf_linear_args call = linear.args();
    ASSERT_EQ(rf_linear_forward(&call), RF_OK) << rf_last_error();
    for (int64_t r = 0; r < 20; ++r) {
      for (int64_t j = 0; j < 40; ++j) {
        const double y = linear.y.at(r * 40 + j);
        ASSERT_EQ(std::isnan(y), r == 3) << r << " " << j;
        ASSERT_EQ(std::isfinite(y), r != 3 && j != 39) << r << " " << j;
      }
    }
  }
}

// Callers on several threads share the primitives that are made on the way.
TEST_P(LinearTiles, CallersOnSeveralThreads) {
  std::vector<LinearLayerCase> cases(4, LinearLayerCase(RF_F32, 47, 83, 91));
  std::vector<std::thread> threads;
  for (LinearLayerCase& linear : cases) threads.emplace_back([&linear] { linear.run(); });
  for (std::thread& thread : threads) thread.join();
  for (const LinearLayerCase& linear : cases) EXPECT_EQ(linear.y.bytes, cases[0].y.bytes);
  expect_right(cases[0], "threads");
}

INSTANTIATE_TEST_SUITE_P(Targets, Linear, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);
INSTANTIATE_TEST_SUITE_P(Targets, LinearTiles, testing::ValuesIn(instruction_sets()), name_of_target);

TEST(LinearBackend, FollowsTheRule) {
  EXPECT_STREQ(rf_linear_backend(RF_F64, 100, 8, 8), "ref");
  EXPECT_STREQ(rf_linear_backend(RF_F16, 100, 8, 8), "plain");
  EXPECT_STREQ(rf_linear_backend(RF_F32, 100, 8, 8), "plain");
  ASSERT_EQ(rf_set_target("ref"), RF_OK);
  EXPECT_STREQ(rf_linear_backend(RF_F32, 16, 8, 8), "ref");
  ASSERT_EQ(rf_set_target(""), RF_OK);
}

}  // namespace
}  // namespace rf::tests
