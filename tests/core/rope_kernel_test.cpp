// Every instruction set of this machine against the float64 loops: element types, layouts, head sizes, partial
// rotation, directions. Strides and positions do not depend on it: tests/ops/test_rope.py has them.
#include <cstring>
#include <memory>

#include "common/reference.h"
#include "core/rope_case.h"
#include "rope/kernel.h"

namespace rf::tests {
namespace {

constexpr rf_dtype kTypes[] = {RF_F32, RF_F64, RF_BF16, RF_F16};
constexpr rf_rope_layout kLayouts[] = {RF_ROPE_PAIRS, RF_ROPE_HALVES};
constexpr int64_t kPositions[] = {0, 1, 2, 511, 512, 4095, 16383, 131071, 1048575, 2147483647};
constexpr int64_t kTokens = 10;
constexpr double kScale = 1.5;
// |c x_a| + |s x_b| for |x| <= 2.
constexpr double kMagnitude = 4 * kScale;

using RopeKernel = TargetTest;

TEST_P(RopeKernel, HeadSizesTypesLayoutsDirections) {
  // Rotated elements of a head's.
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{2, 2}, {6, 6}, {16, 16}, {24, 70}, {64, 64}, {70, 70}, {128, 128}};
  for (const auto& [rotary_dim, dim] : kSizes) {
    const Frequencies frequencies(rotary_dim);
    const Rope rope = make_rope(frequencies, kScale);
    for (const rf_dtype dtype : kTypes) {
      for (const rf_rope_layout layout : kLayouts) {
        for (const rf_rope_direction direction : {RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE, RF_ROPE_INVERSE}) {
          // The directions differ in signs and scale alone, so small sizes with and without a tail have them all.
          if (direction != RF_ROPE_FORWARD && dim != 16 && rotary_dim != 70) continue;
          Elements x(dtype, kTokens * 2 * dim), y = x, want = x;
          x.fill();
          rf_rope_args args = contiguous_args(x, y, 1, kTokens, 2, dim, layout);
          args.positions_i64 = kPositions;
          args.direction = direction;
          ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
          args.y = want.bytes.data();
          ref::rope(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), kScale, args);
          expect_near(y, want, kMagnitude,
                      "dtype " + std::to_string(dtype) + " layout " + std::to_string(layout) + " dim " +
                          std::to_string(dim) + " direction " + std::to_string(direction));
        }
      }
    }
  }
}

// Rotary sizes with and without elements left over after the last whole vector.
constexpr int64_t kBitDims[] = {2, 6, 22, 48, 70};

TEST_P(RopeKernel, EveryHeadGetsTheSameBitsAndSoDoCallsInPlace) {
  constexpr int64_t kHeads = 19;
  for (const int64_t dim : kBitDims) {
    const Rope rope = make_rope(Frequencies(dim));
    for (const rf_dtype dtype : kTypes) {
      for (const rf_rope_layout layout : kLayouts) {
        const std::string what =
            "dtype " + std::to_string(dtype) + " layout " + std::to_string(layout) + " dim " + std::to_string(dim);
        const int64_t width = dim + 2;  // two elements of a head are not rotated
        Elements x(dtype, kTokens * kHeads * width), y = x;
        x.fill();
        const auto head_bytes = static_cast<size_t>(width * bytes_of(dtype));
        for (int64_t i = 0; i < kTokens * kHeads; ++i) {
          std::memcpy(&x.bytes[static_cast<size_t>(i) * head_bytes], x.bytes.data(), head_bytes);
        }
        rf_rope_args args = contiguous_args(x, y, 1, kTokens, kHeads, width, layout);
        args.positions_i64 = kPositions;
        ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
        for (size_t i = 0; i < kTokens * kHeads; ++i) {
          const size_t first = i / kHeads * kHeads;
          ASSERT_EQ(std::memcmp(&y.bytes[i * head_bytes], &y.bytes[first * head_bytes], head_bytes), 0) << what;
        }
        args.y = x.bytes.data();
        ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK);
        EXPECT_EQ(x.bytes, y.bytes) << what;
      }
    }
  }
}

// One tile with streaming stores against the same with plain ones, whatever the size of this machine's caches: straight
// to memory where vectors are whole and aligned, through the stage where they are not.
TEST_P(RopeKernel, StreamingTilesGiveTheSameBits) {
  constexpr int64_t kHeads = 5;
  constexpr size_t kLine = 64;
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      for (const auto& [rotary_dim, dim] : {std::pair<int64_t, int64_t>{64, 64}, {48, 64}, {70, 70}}) {
        const int64_t count = kTokens * kHeads * dim;
        Elements x(dtype, count), plain = x, rows(dtype == RF_F64 ? RF_F64 : RF_F32, kTokens * rotary_dim);
        x.fill();
        rows.fill();
        std::vector<char> stage(static_cast<size_t>(core::rope_stage_bytes(dim * bytes_of(dtype))));
        std::vector<char> room(plain.bytes.size() + 2 * kLine);
        for (const bool token_major : {true, false}) {
          core::RopeTile tile;
          tile.dtype = dtype, tile.layout = layout, tile.x = x.bytes.data();
          tile.tokens = kTokens, tile.heads = kHeads, tile.head_dim = dim, tile.num_freqs = rotary_dim / 2;
          tile.x_stride_t = tile.y_stride_t = token_major ? kHeads * dim : dim;
          tile.x_stride_h = tile.y_stride_h = token_major ? dim : kTokens * dim;
          for (int64_t t = 0; t < kTokens; ++t) {
            tile.cos[t] = rows.bytes.data() + t * rotary_dim * bytes_of(rows.dtype);
            tile.sin[t] = rows.bytes.data() + (t * rotary_dim + rotary_dim / 2) * bytes_of(rows.dtype);
          }
          tile.y = plain.bytes.data();
          core::rotate_tile(tile);
          tile.stores = core::Stores::kStreaming, tile.stage = stage.data();
          for (const int64_t past_a_line : {0, 1}) {
            void* start = room.data();
            size_t space = room.size();
            ASSERT_NE(std::align(kLine, plain.bytes.size() + kLine, start, space), nullptr);
            tile.y = static_cast<char*>(start) + past_a_line * bytes_of(dtype);
            core::rotate_tile(tile);
            core::finish_streaming();
            EXPECT_EQ(std::memcmp(tile.y, plain.bytes.data(), plain.bytes.size()), 0)
                << "dtype " << dtype << " layout " << layout << " " << rotary_dim << " of " << dim << " token-major "
                << token_major << " past a line " << past_a_line;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, RopeKernel, testing::ValuesIn(instruction_sets()), name_of_target);

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
