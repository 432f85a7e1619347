// Memory that is kept between calls: table rows of any position, bounds in bytes, and giving all of it back.
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <thread>

#include "common/scratch.h"
#include "core/attention_case.h"
#include "core/rope_case.h"
#include "rope/cache.h"

namespace rf::tests {
namespace {

// Rows computed by a call with these positions.
int64_t rows_of_call(rf_rope* rope, rf_dtype dtype, const std::vector<double>& positions, int64_t head_dim = 8) {
  const auto tokens = static_cast<int64_t>(positions.size());
  Elements x(dtype, tokens * head_dim), y = x;
  x.fill();
  rf_rope_args args = contiguous_args(x, y, 1, tokens, 1, head_dim, RF_ROPE_PAIRS);
  args.positions_f64 = positions.data();
  const int64_t before = core::rows_computed();
  EXPECT_EQ(rf_rope_apply(rope, &args), RF_OK) << rf_last_error();
  return core::rows_computed() - before;
}

std::vector<double> steps(double first, double step, int64_t count) {
  std::vector<double> positions(static_cast<size_t>(count));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = first + step * static_cast<double>(i);
  return positions;
}

TEST(Memory, RowsOfAnyPositionAreComputedOnce) {
  const Frequencies frequencies(8);
  const Rope rope = make_rope(frequencies);
  for (const auto& [positions, most] : {std::pair{steps(0, 1, 400), 512},
                                        {steps(131072, 1, 400), 512},
                                        {steps(0x1p40, 1, 400), 512},
                                        {steps(-700, 1, 400), 768},
                                        {steps(0.25, 0.5, 400), 400},
                                        {steps(-3.5, -0.125, 400), 400 + 256}}) {
    const int64_t computed = rows_of_call(rope.get(), RF_F32, positions);
    EXPECT_GT(computed, 0) << positions[0];
    EXPECT_LE(computed, most) << positions[0];
    EXPECT_EQ(rows_of_call(rope.get(), RF_BF16, positions), 0) << positions[0];
  }
}

// Rows so long that those of kManyTokens positions take more than half of what may be kept.
constexpr int64_t kFrequencies = 4096, kRowBytes = 2 * kFrequencies * 8;
constexpr int64_t kManyTokens = core::kMaxTableBytes / kRowBytes * 3 / 5;

// A call for kManyTokens tokens that are all x, and all have their result in y: for one thread.
rf_rope_args long_call(const Elements& x, Elements& y, int64_t first) {
  rf_rope_args args = contiguous_args(x, y, 1, kManyTokens, 1, 2 * kFrequencies, RF_ROPE_PAIRS);
  args.x_stride_t = args.y_stride_t = 0;
  args.position_offset = first;
  return args;
}

TEST(Memory, TablesOfAllOperatorsAreBoundedTogether) {
  rf_release_memory();
  const Frequencies frequencies(2 * kFrequencies);
  const Rope old = make_rope(frequencies), recent = make_rope(frequencies), small = make_rope(Frequencies(8));
  Elements x(RF_F64, 2 * kFrequencies), y = x;
  const auto rows = [&](rf_rope* rope, int64_t first) {
    const rf_rope_args args = long_call(x, y, first);
    const int64_t before = core::rows_computed();
    EXPECT_EQ(rf_rope_apply(rope, &args), RF_OK) << rf_last_error();
    return core::rows_computed() - before;
  };
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  rows_of_call(small.get(), RF_F32, steps(0, 1, 10));
  EXPECT_GE(rows(old.get(), 0), kManyTokens);
  EXPECT_EQ(rows(old.get(), 0), 0);
  EXPECT_EQ(rows_of_call(small.get(), RF_F32, steps(0, 1, 10)), 0);
  EXPECT_GE(rows(recent.get(), 0), kManyTokens);
  EXPECT_LE(rf_memory_held().table_bytes, core::kMaxTableBytes);
  EXPECT_EQ(rows(recent.get(), 0), 0);
  EXPECT_EQ(rows_of_call(small.get(), RF_F32, steps(0, 1, 10)), 0);  // used after `old`, which went
  omp_set_num_threads(threads);
  rf_release_memory();
  EXPECT_EQ(rf_memory_held().table_bytes, 0);
}

// Two calls at once that each need more than half of what may be kept: one of them computes its rows for itself.
TEST(Memory, TheBoundHoldsForCallsAtOnce) {
  rf_release_memory();
  const Frequencies frequencies(2 * kFrequencies);
  std::vector<std::thread> threads;
  std::atomic<int> waiting = 2;
  const Rope ropes[] = {make_rope(frequencies), make_rope(frequencies)};
  for (const Rope& rope : ropes) {
    threads.emplace_back([&] {
      omp_set_num_threads(1);
      Elements x(RF_F64, 2 * kFrequencies), y = x;
      const rf_rope_args args = long_call(x, y, 0);
      for (--waiting; waiting > 0;) {
      }
      EXPECT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(rf_memory_held().table_bytes, core::kMaxTableBytes);
  // What either call reserved is free again.
  EXPECT_GT(rows_of_call(ropes[0].get(), RF_F64, steps(0x1p30, 1, 10), 2 * kFrequencies), 0);
  EXPECT_EQ(rows_of_call(ropes[0].get(), RF_F64, steps(0x1p30, 1, 10), 2 * kFrequencies), 0);
  rf_release_memory();
  EXPECT_EQ(rf_memory_held().table_bytes, 0);
}

TEST(Memory, WorkSpaceOfALongCallIsGivenBack) {
  AttentionShape shape;
  shape.queries = 2, shape.keys = 300000;  // 256 bytes of work space each
  shape.head_dim = shape.value_dim = 17;
  AttentionCase(shape, 1).run_tiles();
  EXPECT_LE(rf_memory_held().work_bytes, core::kMaxIdleBytes);
  shape.keys = 100;
  AttentionCase(shape, 1).run_tiles();
  const int64_t held = rf_memory_held().work_bytes;
  EXPECT_GT(held, 0);
  AttentionCase(shape, 1).run_tiles();
  EXPECT_EQ(rf_memory_held().work_bytes, held);
  rf_release_memory();
  EXPECT_EQ(rf_memory_held().work_bytes, 0);
}

TEST(Memory, MayBeReleasedWhileCallsRun) {
  const Frequencies frequencies(8);
  const Rope rope = make_rope(frequencies);
  AttentionShape shape;
  shape.queries = shape.keys = 70, shape.query = shape.key = true;
  std::vector<int> wrong(3, 0);
  std::vector<std::thread> threads;
  for (size_t k = 0; k < wrong.size(); ++k) {
    threads.emplace_back([&, k] {
      omp_set_num_threads(1);
      const auto expected = AttentionCase(shape, k).run_tiles();
      for (int step = 0; step < 30; ++step) {
        wrong[k] += AttentionCase(shape, k).run_tiles() != expected;
        rows_of_call(rope.get(), RF_F32, steps(300.0 * step, 1, 300));
      }
    });
  }
  for (int i = 0; i < 1000; ++i) rf_release_memory();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3, 0));
}

}  // namespace
}  // namespace rf::tests
