// rf_rope_rotate, on every instruction set of this machine and in the float64 loops, against the formula in long
// double:
//
//   y_a = c x_a - s x_b,  y_b = s x_a + c x_b        s is negated for the transpose
//
// over element types, layouts, sizes, strides and places; that rows made by rf_rope_table give the bits of
// rf_rope_apply (R-ROPE-04) with any number of threads; and every broken rule.
#include <omp.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/rope_case.h"

namespace rf::tests {
namespace {

constexpr rf_dtype kTypes[] = {RF_F32, RF_F64, RF_BF16, RF_F16};
constexpr rf_rope_layout kLayouts[] = {RF_ROPE_PAIRS, RF_ROPE_HALVES};
constexpr int64_t kBatch = 2, kTokens = 5, kHeads = 3;
// |c x_a| + |s x_b| for |x| <= 2 and |c|, |s| <= 2.
constexpr double kMagnitude = 8;

rf_dtype row_type(rf_dtype dtype) { return dtype == RF_F64 ? RF_F64 : RF_F32; }

// A call on contiguous data, [kBatch, kTokens, kHeads, head_dim], with rows [kBatch, kTokens, num_freqs].
struct RowsCase {
  Elements x, y, cos, sin;
  rf_rope_rows_args args = {};

  RowsCase(rf_dtype dtype, rf_rope_layout layout, int64_t rotary_dim, int64_t head_dim, int64_t tokens = kTokens,
           int64_t row_size = 0)
      : x(dtype, kBatch * tokens * kHeads * head_dim + 1),
        y(x),
        cos(row_type(dtype), kBatch * tokens * std::max(row_size, rotary_dim / 2)),
        sin(cos) {
    x.fill();
    cos.fill();
    for (int64_t i = 0; i < sin.count(); ++i) sin.set(i, 2 * std::cos(0.3 * static_cast<double>(i % 99991)));
    args.struct_size = sizeof(args);
    args.dtype = dtype;
    args.layout = layout;
    args.direction = RF_ROPE_FORWARD;
    args.batch = kBatch;
    args.tokens = tokens;
    args.heads = kHeads;
    args.head_dim = head_dim;
    args.x = x.bytes.data();
    args.y = y.bytes.data();
    args.x_stride_h = args.y_stride_h = head_dim;
    args.x_stride_t = args.y_stride_t = kHeads * head_dim;
    args.x_stride_b = args.y_stride_b = tokens * kHeads * head_dim;
    args.num_freqs = rotary_dim / 2;
    args.cos = cos.bytes.data();
    args.sin = sin.bytes.data();
    args.row_stride_t = std::max(row_size, rotary_dim / 2);
    args.row_stride_b = tokens * args.row_stride_t;
  }

  // What the call must leave in y; x_first and y_first: the element where args.x and args.y begin.
  Elements expected(int64_t x_first = 0, int64_t y_first = 0) const {
    Elements want = y;
    const int64_t n = args.num_freqs;
    for (int64_t b = 0; b < args.batch; ++b) {
      for (int64_t t = 0; t < args.tokens; ++t) {
        for (int64_t h = 0; h < args.heads; ++h) {
          const int64_t from = x_first + b * args.x_stride_b + t * args.x_stride_t + h * args.x_stride_h;
          const int64_t to = y_first + b * args.y_stride_b + t * args.y_stride_t + h * args.y_stride_h;
          const int64_t row = b * args.row_stride_b + t * args.row_stride_t;
          for (int64_t i = 0; i < n; ++i) {
            const int64_t first = args.layout == RF_ROPE_PAIRS ? 2 * i : i;
            const int64_t second = args.layout == RF_ROPE_PAIRS ? 2 * i + 1 : i + n;
            const long double c = cos.at(row + i);
            const long double s = args.direction == RF_ROPE_FORWARD ? sin.at(row + i) : -sin.at(row + i);
            const long double a = x.at(from + first), d = x.at(from + second);
            want.set(to + first, static_cast<double>(c * a - s * d));
            want.set(to + second, static_cast<double>(s * a + c * d));
          }
          for (int64_t d = 2 * n; d < args.head_dim; ++d) want.set(to + d, x.at(from + d));
        }
      }
    }
    return want;
  }

  std::string name() const {
    return "dtype " + std::to_string(args.dtype) + " layout " + std::to_string(args.layout) + " rotary " +
           std::to_string(2 * args.num_freqs) + " of " + std::to_string(args.head_dim) + " direction " +
           std::to_string(args.direction);
  }
};

class RopeRows : public TargetTest {
 protected:
  // `shape` changes the call before it runs.
  static void compare(rf_dtype dtype, rf_rope_layout layout, int64_t rotary_dim, int64_t head_dim,
                      const std::function<void(RowsCase&)>& shape) {
    RowsCase rows(dtype, layout, rotary_dim, head_dim);
    shape(rows);
    const Elements want = rows.expected();
    ASSERT_EQ(rf_rope_rotate(&rows.args), RF_OK) << rf_last_error();
    expect_near(rows.y, want, kMagnitude, rows.name());
  }

  static void compare_all(int64_t rotary_dim, int64_t head_dim, const std::function<void(RowsCase&)>& shape) {
    for (const rf_dtype dtype : kTypes) {
      for (const rf_rope_layout layout : kLayouts) compare(dtype, layout, rotary_dim, head_dim, shape);
    }
  }
};

TEST_P(RopeRows, HeadSizesTypesLayoutsDirections) {
  for (const int64_t dim : {2, 6, 24, 64, 70, 256}) {
    for (const rf_rope_direction direction : {RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE}) {
      compare_all(dim, dim, [direction](RowsCase& rows) { rows.args.direction = direction; });
    }
  }
}

TEST_P(RopeRows, RowsSharedByTheBatchOrByAllTokens) {
  compare_all(16, 16, [](RowsCase& rows) { rows.args.row_stride_b = 0; });
  compare_all(16, 16, [](RowsCase& rows) { rows.args.row_stride_b = rows.args.row_stride_t = 0; });
}

TEST_P(RopeRows, OddPlacesAndLongRows) {
  // Data that begins at its second element, token-major into head-major; rows with other numbers between them.
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      RowsCase rows(dtype, layout, 24, 32, kTokens, 19);
      rows.args.x = rows.x.bytes.data() + bytes_of(dtype);
      rows.args.y = rows.y.bytes.data() + bytes_of(dtype);
      rows.args.y_stride_t = 32;
      rows.args.y_stride_h = kTokens * 32;
      const Elements want = rows.expected(1, 1);
      ASSERT_EQ(rf_rope_rotate(&rows.args), RF_OK) << rf_last_error();
      expect_near(rows.y, want, kMagnitude, rows.name());
    }
  }
}

TEST_P(RopeRows, EmptyExtents) {
  RowsCase rows(RF_F32, RF_ROPE_PAIRS, 8, 8);
  rows.args.x = rows.args.cos = rows.args.sin = nullptr;
  rows.args.y = nullptr;
  for (int64_t* extent : {&rows.args.batch, &rows.args.tokens, &rows.args.heads}) {
    const int64_t before = std::exchange(*extent, 0);
    EXPECT_EQ(rf_rope_rotate(&rows.args), RF_OK) << rf_last_error();
    *extent = before;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RopeRows, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

// Tables of rf_rope_table hold what rf_rope_apply keeps, and one kernel serves both: no bit differs, with any number of
// threads.
TEST(RopeRowsAndPositions, SameBits) {
  constexpr int64_t kMany = 517, kDim = 64, kRotated = 48;
  constexpr double kScale = 0.75;
  const int threads = omp_get_max_threads();
  const Frequencies frequencies(kRotated);
  const Rope rope = make_rope(frequencies, kScale);
  std::vector<double> positions(kMany);
  for (int64_t t = 0; t < kMany; ++t) positions[static_cast<size_t>(t)] = static_cast<double>(t - 3);
  const auto fill_rows = [&](RowsCase& rows) {
    const auto table = [&]<class T>(T* cos, T* sin, auto* fill) {
      ASSERT_EQ(fill(frequencies.hi.data(), frequencies.lo.data(), frequencies.count(), kScale, positions.data(), kMany,
                     cos, sin),
                RF_OK);
    };
    if (rows.cos.dtype == RF_F64) {
      table(reinterpret_cast<double*>(rows.cos.bytes.data()), reinterpret_cast<double*>(rows.sin.bytes.data()),
            &rf_rope_table_f64);
    } else {
      table(reinterpret_cast<float*>(rows.cos.bytes.data()), reinterpret_cast<float*>(rows.sin.bytes.data()),
            &rf_rope_table_f32);
    }
    rows.args.row_stride_b = 0;
  };
  for (const rf_dtype dtype : kTypes) {
    for (const rf_rope_layout layout : kLayouts) {
      for (const rf_rope_direction direction : {RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE}) {
        RowsCase rows(dtype, layout, kRotated, kDim, kMany);
        fill_rows(rows);
        rows.args.direction = direction;
        Elements by_position = rows.y;
        rf_rope_args args = contiguous_args(rows.x, by_position, kBatch, kMany, kHeads, kDim, layout);
        args.direction = direction;
        args.position_offset = -3;
        ASSERT_EQ(rf_rope_apply(rope.get(), &args), RF_OK) << rf_last_error();
        for (const int count : {1, 2}) {
          omp_set_num_threads(count);
          ASSERT_EQ(rf_rope_rotate(&rows.args), RF_OK) << rf_last_error();
          EXPECT_EQ(rows.y.bytes, by_position.bytes) << rows.name() << " threads " << count;
        }
      }
    }
  }
  omp_set_num_threads(threads);
}

TEST(RopeRowsErrors, EveryRule) {
  RowsCase good(RF_F32, RF_ROPE_PAIRS, 8, 8);
  ASSERT_EQ(rf_rope_rotate(&good.args), RF_OK) << rf_last_error();
  const auto refused = [&](const std::string& text, const std::function<void(rf_rope_rows_args&)>& change) {
    rf_rope_rows_args args = good.args;
    change(args);
    EXPECT_EQ(rf_rope_rotate(&args), RF_INVALID_ARGUMENT) << text;
    EXPECT_EQ(std::string(rf_last_error()).find("[rotate] " + text), 0U) << rf_last_error();
  };
  using Args = rf_rope_rows_args;
  EXPECT_EQ(rf_rope_rotate(nullptr), RF_INVALID_ARGUMENT);
  EXPECT_STREQ(rf_last_error(), "[rotate] args must not be NULL, got NULL");
  refused("struct_size of args must be in", [](Args& args) { args.struct_size = 8; });
  refused("direction must be RF_ROPE_FORWARD or RF_ROPE_TRANSPOSE, got 3",
          [](Args& args) { args.direction = RF_ROPE_INVERSE; });
  refused("dtype must be", [](Args& args) { args.dtype = static_cast<rf_dtype>(0); });
  refused("layout must be", [](Args& args) { args.layout = static_cast<rf_rope_layout>(0); });
  refused("num_freqs must be in 1..524288, got 0", [](Args& args) { args.num_freqs = 0; });
  refused("head_dim must be >= rotary_dim = 10, got 8", [](Args& args) { args.num_freqs = 5; });
  refused("tokens must be >= 0, got -1", [](Args& args) { args.tokens = -1; });
  refused("row strides must be >= 0, got -1 and 4", [](Args& args) { args.row_stride_b = -1; });
  refused("x and y must not be NULL", [](Args& args) { args.y = nullptr; });
  refused("cos and sin must not be NULL", [](Args& args) { args.sin = nullptr; });
  refused("cos and sin must be aligned to their element of 4 bytes",
          [](Args& args) { args.cos = static_cast<const char*>(args.cos) + 2; });
  refused("extents times strides of cos and sin must fit in int64", [](Args& args) { args.row_stride_b = INT64_MAX; });
  refused("extents times strides of cos and sin must fit in int64",
          [](Args& args) { args.row_stride_t = INT64_MAX / 2; });
  refused("strides of x and y must be equal in place", [](Args& args) {
    args.y = const_cast<void*>(args.x);
    args.y_stride_t = 0;
  });
}

}  // namespace
}  // namespace rf::tests
