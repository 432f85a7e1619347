// Every instruction set of this machine against the float64 loops: element types, layouts, head sizes, partial
// rotation, strides, places, positions; and that the number of threads changes no bit (style: positions and head
// sizes).
#include <omp.h>

#include <cstring>
#include <functional>

#include "core/rope_case.h"

namespace rf::tests {
namespace {

constexpr rf_dtype kTypes[] = {RF_F32, RF_F64, RF_BF16, RF_F16};
constexpr rf_rope_layout kLayouts[] = {RF_ROPE_PAIRS, RF_ROPE_HALVES};
constexpr int64_t kPositions[] = {0, 1, 2, 511, 512, 4095, 16383, 131071, 1048575, 2147483647};
constexpr int64_t kTokens = 10;
constexpr double kScale = 1.5;
// |c x_a| + |s x_b| for |x| <= 2.
constexpr double kMagnitude = 4 * kScale;

class RopeKernel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_EQ(rf_set_target(GetParam().c_str()), RF_OK) << rf_last_error(); }
  void TearDown() override { rf_set_target(""); }

  // Runs the call into y, and the float64 loops into `want`, and compares; `shape` sets strides and the like.
  static void compare(rf_dtype dtype, rf_rope_layout layout, int64_t rotary_dim, int64_t head_dim, int64_t elements,
                      const std::function<void(rf_rope_args&)>& shape, const std::string& what) {
    const Frequencies frequencies(rotary_dim);
    const Rope rope = make_rope(frequencies, kScale);
    Elements x(dtype, elements), y(dtype, elements), want(dtype, elements);
    x.fill();
    rf_rope_args args = contiguous_args(x, y, 1, kTokens, 2, head_dim, layout);
    args.positions_i64 = kPositions;
    shape(args);
    ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
    args.y = want.bytes.data();
    ref::rope(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), kScale, args);
    expect_near(y, want, kMagnitude, what);
  }
};

TEST_P(RopeKernel, HeadSizesTypesLayoutsDirections) {
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      for (const int64_t dim : {2, 6, 16, 24, 64, 70, 80, 128, 256}) {
        for (const rf_rope_direction direction : {RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE, RF_ROPE_INVERSE}) {
          compare(
              dtype, layout, dim, dim, kTokens * 2 * dim,
              [direction](rf_rope_args& args) { args.direction = direction; },
              "dtype " + std::to_string(dtype) + " layout " + std::to_string(layout) + " dim " + std::to_string(dim) +
                  " direction " + std::to_string(direction));
        }
      }
    }
  }
}

TEST_P(RopeKernel, PartialRotationPassesTheRestOn) {
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      compare(
          dtype, layout, 24, 70, kTokens * 2 * 70, [](rf_rope_args&) {}, "24 of 70");
    }
  }
}

TEST_P(RopeKernel, HeadMajorData) {
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      compare(
          dtype, layout, 64, 64, kTokens * 2 * 64,
          [](rf_rope_args& args) {
            args.x_stride_t = args.y_stride_t = 64;
            args.x_stride_h = args.y_stride_h = kTokens * 64;
          },
          "head-major");
    }
  }
}

TEST_P(RopeKernel, SliceOfFusedProjection) {
  // The key third of [T, 3, H, D], at an odd element offset, into head-major data; what lies between stays.
  constexpr int64_t kDim = 16, kRow = 3 * 2 * kDim;
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      const Frequencies frequencies(kDim);
      const Rope rope = make_rope(frequencies);
      Elements x(dtype, kTokens * kRow + 1), y(dtype, kTokens * 2 * kDim), want = y;
      x.fill();
      rf_rope_args args = contiguous_args(x, y, 1, kTokens, 2, kDim, layout);
      args.x = x.bytes.data() + (1 + 2 * kDim) * bytes_of(dtype);
      args.x_stride_t = kRow;
      args.y_stride_t = kDim;
      args.y_stride_h = kTokens * kDim;
      args.position_offset = -4;
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
      args.y = want.bytes.data();
      ref::rope(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), 1, args);
      expect_near(y, want, kMagnitude, "slice");
    }
  }
}

TEST_P(RopeKernel, InPlaceGivesTheSameBits) {
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      const Frequencies frequencies(48);
      const Rope rope = make_rope(frequencies);
      Elements x(dtype, 3 * 7 * 2 * 50), y = x;
      x.fill();
      rf_rope_args args = contiguous_args(x, y, 3, 7, 2, 50, layout);
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
      args.y = x.bytes.data();
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
      EXPECT_EQ(x.bytes, y.bytes);
    }
  }
}

TEST_P(RopeKernel, PositionsOfPackedAndOddKinds) {
  // [B, T] ids that restart, fractions, negatives and positions beyond the cache, in float64 and as integers.
  const std::vector<int64_t> ids = {0, 1, 2, 0, 1, 7, 7, 0, -3, 4000000000};
  const std::vector<double> fractions = {0.5, 1, 2.25, -1.5, 300, 1e9, 7, 0, -3, 4e9};
  for (const rf_dtype dtype : kTypes) {
    const Frequencies frequencies(16);
    const Rope rope = make_rope(frequencies, 1, 8);
    Elements x(dtype, 2 * 5 * 3 * 16), y = x, want = x;
    x.fill();
    rf_rope_args args = contiguous_args(x, y, 2, 5, 3, 16, RF_ROPE_HALVES);
    args.position_stride_b = 5;
    for (const bool integers : {true, false}) {
      args.positions_i64 = integers ? ids.data() : nullptr;
      args.positions_f64 = fractions.data();
      args.y = y.bytes.data();
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
      args.y = want.bytes.data();
      ref::rope(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), 1, args);
      expect_near(y, want, kMagnitude, "positions");
    }
  }
}

TEST_P(RopeKernel, EmptyExtents) {
  const Frequencies frequencies(16);
  const Rope rope = make_rope(frequencies);
  Elements x(RF_F32, 0), y(RF_F32, 0);
  for (const auto& [batch, tokens, heads] : {std::array<int64_t, 3>{0, 3, 2}, {2, 0, 2}, {2, 3, 0}}) {
    rf_rope_args args = contiguous_args(x, y, batch, tokens, heads, 16, RF_ROPE_PAIRS);
    EXPECT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
  }
}

TEST_P(RopeKernel, ThreadsChangeNoBit) {
  const int threads = omp_get_max_threads();
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      const Frequencies frequencies(64);
      const Rope rope = make_rope(frequencies);
      Elements x(dtype, 2 * 517 * 3 * 66), one = x, two = x;
      x.fill();
      rf_rope_args args = contiguous_args(x, one, 2, 517, 3, 66, layout);
      omp_set_num_threads(1);
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
      args.y = two.bytes.data();
      omp_set_num_threads(2);
      ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
      EXPECT_EQ(one.bytes, two.bytes);
    }
  }
  omp_set_num_threads(threads);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, RopeKernel, testing::ValuesIn(instruction_sets()),
                         [](const auto& info) { return info.param; });

// Results larger than the last-level cache leave by streaming stores; misaligned ones too.
TEST(RopeStreaming, SameBitsAsPlainStores) {
  constexpr int64_t kHeads = 12, kDim = 64, kManyTokens = 16384, kFew = 64;
  const Frequencies frequencies(kDim);
  const Rope rope = make_rope(frequencies);
  constexpr int64_t kCount = kManyTokens * kHeads * kDim;
  Elements x(RF_F32, kCount), y(RF_F32, kCount + 1);
  x.fill();
  rf_rope_args args = contiguous_args(x, y, 1, kManyTokens, kHeads, kDim, RF_ROPE_PAIRS);
  args.y = y.bytes.data() + bytes_of(RF_F32);
  ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
  Elements few(RF_F32, kFew * kHeads * kDim);
  for (int64_t first = 0; first < kManyTokens; first += kFew) {
    const int64_t at = first * kHeads * kDim * bytes_of(RF_F32);
    rf_rope_args plain = contiguous_args(x, few, 1, kFew, kHeads, kDim, RF_ROPE_PAIRS);
    plain.x = x.bytes.data() + at;
    plain.position_offset = first;
    ASSERT_EQ(rf_rope_apply(rope.get(), &plain), RF_OK);
    ASSERT_EQ(std::memcmp(few.bytes.data(), y.bytes.data() + bytes_of(RF_F32) + at, few.bytes.size()), 0) << first;
  }
}

}  // namespace
}  // namespace rf::tests
