// Every rule of the rotary functions, broken once: the status, and the text "[rope] rule, got value".
#include <limits>

#include "core/rope_case.h"
#include "rf/dropout.h"

namespace rf::tests {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(RopeErrors, Frequencies) {
  double hi[4], lo[4];
  expect_refused(rf_rope_frequencies(0, 8, hi, lo), "[rope] base must be finite and > 0", "0");
  expect_refused(rf_rope_frequencies(kNan, 8, hi, lo), "base must be finite", "nan");
  expect_refused(rf_rope_frequencies(1e4, 7, hi, lo), "rotary_dim must be even", "7");
  expect_refused(rf_rope_frequencies(1e4, 0, hi, lo), "rotary_dim must be even", "0");
  expect_refused(rf_rope_frequencies(1e4, (1 << 20) + 2, hi, lo), "rotary_dim must be even", "1048578");
  expect_refused(rf_rope_frequencies(1e4, 8, nullptr, lo), "must not be NULL", "NULL");
}

TEST(RopeErrors, Tables) {
  const double theta[] = {1, 0.5}, bad[] = {1, kInfinity}, position[] = {1}, bad_position[] = {kNan}, far[] = {0x1p61};
  float c[2], s[2];
  double c64[2], s64[2];
  expect_refused(rf_rope_table_f32(nullptr, nullptr, 2, 1, position, 1, c, s), "hi must not be NULL", "NULL");
  expect_refused(rf_rope_table_f32(theta, nullptr, 0, 1, position, 1, c, s), "num_freqs must be in", "0");
  expect_refused(rf_rope_table_f32(bad, nullptr, 2, 1, position, 1, c, s), "frequencies must be finite", "inf");
  expect_refused(rf_rope_table_f32(theta, theta + 1, 1, 0, position, 1, c, s), "scale must be finite, not 0", "0");
  expect_refused(rf_rope_table_f32(theta, nullptr, 2, kNan, position, 1, c, s), "scale must be finite", "nan");
  expect_refused(rf_rope_table_f64(theta, nullptr, 2, 1, bad_position, 1, c64, s64), "positions must be finite", "nan");
  expect_refused(rf_rope_table_f64(theta, nullptr, 2, 1, far, 1, c64, s64), "within 2^60", "2.30");
  expect_refused(rf_rope_table_f64(theta, nullptr, 2, 1, position, -1, c64, s64), "tokens must be >= 0", "-1");
  expect_refused(rf_rope_table_f64(theta, nullptr, 2, 1, nullptr, 1, c64, s64), "must not be NULL", "NULL");
}

TEST(RopeErrors, Creation) {
  const double theta[] = {1, 0.5};
  rf_rope* rope = nullptr;
  expect_refused(rf_rope_create(theta, nullptr, 2, 0, 0, &rope), "scale must be finite, not 0", "0");
  expect_refused(rf_rope_create(theta, nullptr, 2, 1, -1, &rope), "max_cached_rows must be in 0..", "-1");
  expect_refused(rf_rope_create(theta, nullptr, 2, 1, 0, nullptr), "out must not be NULL", "NULL");
  expect_refused(rf_rope_create(nullptr, nullptr, 2, 1, 0, &rope), "hi must not be NULL", "NULL");
  const double lo[] = {2, 0};
  expect_refused(rf_rope_create(theta, lo, 2, 1, 0, &rope), "lo must not exceed hi", "2");
  EXPECT_EQ(rope, nullptr);
}

class RopeCallErrors : public testing::Test {
 protected:
  // A good call of which one thing is then changed.
  rf_rope_args good() { return contiguous_args(x_, y_, 1, 2, 3, 8, RF_ROPE_PAIRS); }
  void refused(const rf_rope_args& args, const std::string& rule, const std::string& got) {
    expect_refused(rf_rope_apply(rope_.get(), &args), rule, got);
  }

  Elements x_{RF_F32, 48}, y_{RF_F32, 48};
  Rope rope_ = make_rope(Frequencies(8));
};

TEST_F(RopeCallErrors, Arguments) {
  rf_rope_args args = good();
  ASSERT_EQ(rf_rope_apply(rope_.get(), &args), RF_OK) << rf_last_error();
  expect_refused(rf_rope_apply(nullptr, &args), "rope must not be NULL", "NULL");
  args = good(), args.dtype = static_cast<rf_dtype>(0), refused(args, "dtype must be", "0");
  args = good(), args.layout = static_cast<rf_rope_layout>(0), refused(args, "layout must be", "0");
  args = good(), args.layout = static_cast<rf_rope_layout>(3), refused(args, "layout must be", "3");
  args = good(), args.direction = static_cast<rf_rope_direction>(0), refused(args, "direction must be", "0");
  args = good(), args.batch = -1, refused(args, "batch must be >= 0", "-1");
  args = good(), args.tokens = -2, refused(args, "tokens must be >= 0", "-2");
  args = good(), args.heads = -3, refused(args, "heads must be >= 0", "-3");
  args = good(), args.head_dim = 6, refused(args, "head_dim must be >= rotary_dim = 8", "6");
  args = good(), args.x = nullptr, refused(args, "x and y must not be NULL", "NULL");
  args = good(), args.y = nullptr, refused(args, "x and y must not be NULL", "NULL");
  args = good(), args.x = x_.bytes.data() + 1, refused(args, "aligned to their element", "");
  args = good(), args.x_stride_t = INT64_MAX / 2, refused(args, "extents times strides of x", "");
  args = good(), args.y_stride_h = INT64_MIN, refused(args, "extents times strides of y", "a stride");
  args = good(), args.y = x_.bytes.data(), args.y_stride_t = 8, refused(args, "strides of x and y must be equal", "");
}

TEST_F(RopeCallErrors, Positions) {
  const int64_t ends[] = {-(int64_t{1} << 53), int64_t{1} << 53}, far[] = {0, ends[1] + 1}, below[] = {0, ends[0] - 1};
  const double nan[] = {0, kNan}, infinite[] = {kInfinity, 0};
  rf_rope_args args = good();
  args.positions_i64 = ends;
  EXPECT_EQ(rf_rope_apply(rope_.get(), &args), RF_OK) << rf_last_error();
  args.positions_i64 = below, refused(args, "positions must be within 2^53", "-9007199254740993");
  args.positions_i64 = far, refused(args, "positions must be within 2^53", "9007199254740993");
  args = good(), args.positions_f64 = nan, refused(args, "positions must be finite", "nan");
  args = good(), args.positions_f64 = infinite, refused(args, "positions must be finite", "inf");
  args = good(), args.position_offset = INT64_MAX, refused(args, "positions must be within 2^53", "offset");
  args = good(), args.positions_f64 = nan, args.position_stride_b = -1;
  refused(args, "position_stride_b must be >= 0", "-1");
  ASSERT_EQ(rf_set_target("ref"), RF_OK);
  args = good(), args.positions_f64 = nan, refused(args, "positions must be finite", "nan");
  rf_set_target("");
}

TEST(RopeErrors, UnknownTarget) {
  expect_refused(rf_set_target("ABACUS"), "[target] name must be one that this machine has", "ABACUS");
  EXPECT_STRNE(rf_target(), "ref");
  // What was chosen before stays.
  ASSERT_EQ(rf_set_target("ref"), RF_OK);
  expect_refused(rf_set_target("ABACUS"), "or ref", "ABACUS");
  EXPECT_STREQ(rf_target(), "ref");
  const std::string restricted = instruction_sets().back();
  ASSERT_EQ(rf_set_target(restricted.c_str()), RF_OK);
  expect_refused(rf_set_target("ABACUS"), "or ref", "ABACUS");
  EXPECT_EQ(rf_target(), restricted);
  ASSERT_EQ(rf_set_target(""), RF_OK);
}

TEST(DropoutErrors, Arguments) {
  float x[4] = {}, y[4];
  expect_refused(rf_dropout(RF_F32, x, y, -1, 0.1, 0, 0), "[dropout] count must be >= 0", "-1");
  expect_refused(rf_dropout(RF_F32, nullptr, y, 4, 0.1, 0, 0), "x and y must not be NULL", "NULL");
  expect_refused(rf_dropout(static_cast<rf_dtype>(0), x, y, 4, 0.1, 0, 0), "dtype must be", "0");
  expect_refused(rf_dropout(RF_F32, x, y, 4, 1, 0, 0), "p must be in", "1");
  expect_refused(rf_dropout(RF_F32, x, y, 4, 1 - 0x1p-17, 0, 0), "p must be in", "0.99999");
  expect_refused(rf_dropout(RF_F32, x, y, 4, -0.1, 0, 0), "p must be in", "-0.1");
  expect_refused(rf_dropout(RF_F32, x, y, 4, kNan, 0, 0), "p must be in", "nan");
  expect_refused(rf_dropout(RF_F32, reinterpret_cast<char*>(x) + 1, y, 3, 0.1, 0, 0), "aligned", "");
  EXPECT_EQ(rf_dropout(RF_F32, nullptr, nullptr, 0, 0.1, 0, 0), RF_OK);
}

}  // namespace
}  // namespace rf::tests
