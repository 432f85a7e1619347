// rf_rope_rotate: rows made by rf_rope_table give the bits of rf_rope_apply (R-ROPE-04), which rope_kernel_test.cpp
// holds to the float64 loops, with any strides and number of threads; and every broken rule. tests/ops/test_rotate.py
// compares rotations, those of the float64 loops too, with the formula.
#include "core/row_case.h"

namespace rf::tests {
namespace {

using RopeRows = TargetTest;

// From the second element of token-major data to head-major data, and rows with other numbers between them.
TEST_P(RopeRows, GiveTheBitsOfPositions) {
  constexpr int64_t kBatch = 2, kTokens = 130, kHeads = 3, kDim = 64, kRotated = 48, kRow = kRotated / 2 + 5;
  constexpr int64_t kFirst = -3;
  constexpr double kScale = 0.75;
  const Frequencies frequencies(kRotated);
  const Rope rope = make_rope(frequencies, kScale);
  const auto moved = [&]<class Args>(Args args) {
    args.x = static_cast<const char*>(args.x) + bytes_of(args.dtype);
    args.y = static_cast<char*>(args.y) + bytes_of(args.dtype);
    args.y_stride_t = kDim, args.y_stride_h = kTokens * kDim;
    return args;
  };
  const auto fill = [&](auto table, auto* cos, auto* sin) {
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto position = static_cast<double>(kFirst + t);
      ASSERT_EQ(table(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), kScale, &position, 1,
                      cos + t * kRow, sin + t * kRow),
                RF_OK);
    }
  };
  std::vector<double> cos64(kTokens * kRow), sin64 = cos64;
  std::vector<float> cos32(kTokens * kRow), sin32 = cos32;
  fill(rf_rope_table_f64, cos64.data(), sin64.data());
  fill(rf_rope_table_f32, cos32.data(), sin32.data());
  for (const rf_dtype dtype : {RF_F32, RF_F64, RF_BF16, RF_F16}) {
    for (const rf_rope_layout layout : {RF_ROPE_PAIRS, RF_ROPE_HALVES}) {
      for (const rf_rope_direction direction : {RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE}) {
        Elements x(dtype, kBatch * kTokens * kHeads * kDim + 1), want = x, y = x;
        x.fill();
        auto args = moved(contiguous_args(x, want, kBatch, kTokens, kHeads, kDim, layout));
        args.direction = direction, args.position_offset = kFirst;
        ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
        auto rows = moved(contiguous_args<rf_rope_rows_args>(x, y, kBatch, kTokens, kHeads, kDim, layout));
        rows.direction = direction, rows.num_freqs = frequencies.count(), rows.row_stride_t = kRow;
        rows.cos = cos32.data(), rows.sin = sin32.data();
        if (dtype == RF_F64) rows.cos = cos64.data(), rows.sin = sin64.data();
        for (const int threads : {1, 2}) {
          omp_set_num_threads(threads);
          ASSERT_EQ(rf_rope_rotate(&rows), RF_OK) << rf_last_error();
          EXPECT_EQ(y.bytes, want.bytes) << "dtype " << dtype << " layout " << layout << " direction " << direction;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RopeRows, testing::ValuesIn(instruction_sets()), name_of_target);

TEST(RopeRowsErrors, EveryRule) {
  Elements x(RF_F32, 2 * 5 * 3 * 8), y = x, rows(RF_F32, 2 * 5 * 4);
  auto good = contiguous_args<rf_rope_rows_args>(x, y, 2, 5, 3, 8, RF_ROPE_PAIRS);
  good.num_freqs = good.row_stride_t = 4, good.row_stride_b = 20;
  good.cos = good.sin = rows.bytes.data();
  ASSERT_EQ(rf_rope_rotate(&good), RF_OK) << rf_last_error();
  using Args = rf_rope_rows_args;
  for (int64_t Args::*extent : {&Args::batch, &Args::tokens, &Args::heads}) {
    Args empty = good;
    empty.*extent = 0;
    empty.x = empty.cos = empty.sin = nullptr, empty.y = nullptr;
    EXPECT_EQ(rf_rope_rotate(&empty), RF_OK) << rf_last_error();
  }
  expect_rules<Args>(
      good, rf_rope_rotate,
      {{[](auto& a) { a.direction = RF_ROPE_INVERSE; },
        "[rotate] direction must be RF_ROPE_FORWARD or RF_ROPE_TRANSPOSE, got 3"},
       {[](auto& a) { a.dtype = static_cast<rf_dtype>(0); }, "[rotate] dtype must be"},
       {[](auto& a) { a.layout = static_cast<rf_rope_layout>(0); }, "[rotate] layout must be"},
       {[](auto& a) { a.num_freqs = 0; }, "[rotate] num_freqs must be in 1..524288, got 0"},
       {[](auto& a) { a.num_freqs = 5; }, "[rotate] head_dim must be >= rotary_dim = 10, got 8"},
       {[](auto& a) { a.tokens = -1; }, "[rotate] tokens must be >= 0, got -1"},
       {[](auto& a) { a.row_stride_b = -1; }, "[rotate] row strides must be >= 0, got -1 and 4"},
       {[](auto& a) { a.y = nullptr; }, "[rotate] x and y must not be NULL"},
       {[](auto& a) { a.sin = nullptr; }, "[rotate] cos and sin must not be NULL"},
       {[](auto& a) { a.cos = static_cast<const char*>(a.cos) + 2; },
        "[rotate] cos and sin must be aligned to their element of 4 bytes"},
       {[](auto& a) { a.row_stride_b = INT64_MAX; }, "[rotate] extents times strides of cos and sin must fit in int64"},
       {[](auto& a) { a.row_stride_t = INT64_MAX / 2; },
        "[rotate] extents times strides of cos and sin must fit in int64"},
       {[](auto& a) { a.y = const_cast<void*>(a.x), a.y_stride_t = 0; },
        "[rotate] strides of x and y must be equal in place"}});
}

}  // namespace
}  // namespace rf::tests
