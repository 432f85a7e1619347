// The operator's table cache: calls on several threads while it grows, its bound, positions given one by one, and rows
// that are not finite.
#include <omp.h>

#include <thread>

#include "common/reference.h"
#include "core/rope_case.h"
#include "rope/angle.h"

namespace rf::tests {
namespace {

// Rotates `tokens` tokens from position `first` on; true when every value is right.
bool rotates_rightly(rf_rope* rope, const Frequencies& frequencies, rf_dtype dtype, int64_t first, int64_t tokens) {
  Elements x(dtype, tokens * 8), y = x, want = x;
  x.fill();
  rf_rope_args args = contiguous_args(x, y, 1, tokens, 1, 8, RF_ROPE_PAIRS);
  args.position_offset = first;
  if (rf_rope_apply(rope, &args) != RF_OK) return false;
  args.y = want.bytes.data();
  ref::rope(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), 1, args);
  const double eps = dtype == RF_F64 ? kEpsF64 : kEpsF32;
  for (int64_t i = 0; i < y.count(); ++i) {
    if (!(std::abs(y.at(i) - want.at(i)) <= kRotationEps * eps * 4)) return false;
  }
  return true;
}

TEST(RopeCache, GrowsUnderConcurrentCalls) {
  const Frequencies frequencies(8);
  const Rope rope = make_rope(frequencies);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t k = 0; k < wrong.size(); ++k) {
    threads.emplace_back([&, k] {
      omp_set_num_threads(1);
      for (int64_t step = 0; step < 60; ++step) {
        const rf_dtype dtype = k % 2 == 0 ? RF_F32 : RF_F64;
        const int64_t first = step * 97 * static_cast<int64_t>(k + 1);
        if (!rotates_rightly(rope.get(), frequencies, dtype, first, 300)) ++wrong[k];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(RopeCache, RowsBeyondTheBoundAreComputed) {
  const Frequencies frequencies(8);
  for (const int64_t bound : {1, 7, 300}) {
    const Rope rope = make_rope(frequencies, 1, bound);
    EXPECT_TRUE(rotates_rightly(rope.get(), frequencies, RF_F32, -20, 700)) << bound;
    EXPECT_TRUE(rotates_rightly(rope.get(), frequencies, RF_F32, -20, 700)) << bound;
    EXPECT_TRUE(rotates_rightly(rope.get(), frequencies, RF_F64, 290, 20)) << bound;
  }
}

TEST(RopeCache, OneTokenAtATime) {
  const Frequencies frequencies(8);
  const Rope rope = make_rope(frequencies);
  for (int64_t t = 0; t < 600; ++t) ASSERT_TRUE(rotates_rightly(rope.get(), frequencies, RF_F32, t, 1)) << t;
}

TEST(RopeAngle, IsNotANumberBeyondItsLimit) {
  EXPECT_TRUE(std::isfinite(core::cos_sin(1, {0x1p60, 0}).cos));
  const double frequency = 1e308;
  for (const double theta : {0x1.8p60, frequency}) {
    EXPECT_TRUE(std::isnan(core::cos_sin(2, {theta, 0}).cos));
    EXPECT_TRUE(std::isnan(core::cos_sin(2, {theta, 0}).sin));
  }
  // A page holds such rows; the one that is asked for is right.
  rf_rope* made = nullptr;
  ASSERT_EQ(rf_rope_create(&frequency, nullptr, 1, 1, 0, &made), RF_OK);
  const Rope rope(made);
  Elements x(RF_F32, 2), y = x;
  x.fill();
  const rf_rope_args args = contiguous_args(x, y, 1, 1, 1, 2, RF_ROPE_PAIRS);
  ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
  EXPECT_EQ(x.bytes, y.bytes);
}

}  // namespace
}  // namespace rf::tests
