// Arrays of rows as the tests of rf/rows.h write them: filled, copied to float64, compared element by element.
#ifndef RF_TESTS_CORE_ROW_CASE_H_
#define RF_TESTS_CORE_ROW_CASE_H_

#include <omp.h>

#include <functional>
#include <random>

#include "core/rope_case.h"
#include "rf/dropout.h"
#include "rf/rows.h"

namespace rf::tests {

// [rows, columns], a row every `stride` elements; what lies between rows is kUntouched.
struct Rows {
  static constexpr double kUntouched = 77;
  int64_t rows, columns, stride;
  Elements data;

  Rows(rf_dtype dtype, int64_t row_count, int64_t column_count, int64_t gap)
      : rows(row_count), columns(column_count), stride(column_count + gap), data(dtype, row_count * stride) {
    for (int64_t i = 0; i < data.count(); ++i) data.set(i, kUntouched);
  }
  void* pointer() { return data.bytes.data(); }
  double at(int64_t row, int64_t column) const { return data.at(row * stride + column); }
  void set(int64_t row, int64_t column, double value) { data.set(row * stride + column, value); }
  void fill(uint64_t seed, double mean, double deviation) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> normal(mean, deviation);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) set(r, c, normal(generator));
    }
  }
  Rows to(rf_dtype dtype) const {
    Rows copy(dtype, rows, columns, stride - columns);
    for (int64_t i = 0; i < data.count(); ++i) copy.data.set(i, data.at(i));
    return copy;
  }
};

inline rf_dtype parameter_type(rf_dtype dtype) { return dtype == RF_F64 ? RF_F64 : RF_F32; }

// |got - want| <= bound eps magnitude(row, column), and the rounding of the element where it is narrow. Gaps between
// rows hold what they held.
inline void expect_rows(const Rows& got, const Rows& want, const std::function<double(int64_t, int64_t)>& magnitude,
                        const std::string& what, double bound = kRowEps) {
  const double arithmetic = got.data.dtype == RF_F64 ? kEpsF64 : kEpsF32;
  for (int64_t r = 0; r < got.rows; ++r) {
    for (int64_t c = 0; c < got.columns; ++c) {
      const double error = bound * arithmetic * magnitude(r, c);
      const double rounding = bytes_of(got.data.dtype) == 2 ? eps_of(got.data.dtype) * std::abs(want.at(r, c)) / 2 : 0;
      ASSERT_NEAR(got.at(r, c), want.at(r, c), error + (1 + kEpsBf16) * rounding)
          << what << " row " << r << " column " << c;
    }
    for (int64_t c = got.columns; c < got.stride; ++c) {
      ASSERT_EQ(got.at(r, c), Rows::kUntouched) << what << ": the gap after row " << r << " was written";
    }
  }
}

// The smallest positive number of a type, as a magnitude for bounds in eps of the arithmetic: what is stored rounds to
// a multiple of it.
inline double smallest_of(rf_dtype dtype) {
  const double smallest = dtype == RF_F16    ? 0x1p-24
                          : dtype == RF_BF16 ? 0x1p-133
                          : dtype == RF_F32  ? 0x1p-149
                                             : 0x1p-1074;
  return smallest / (dtype == RF_F64 ? kEpsF64 : kEpsF32);
}

// gradient is the central difference of loss() in every element of values.
inline void expect_differences(Rows& values, const Rows& gradient, const std::function<double()>& loss) {
  for (int64_t r = 0; r < values.rows; ++r) {
    for (int64_t i = 0; i < values.columns; ++i) {
      const double value = values.at(r, i);
      values.set(r, i, value + kDifferenceStep);
      const double above = loss();
      values.set(r, i, value - kDifferenceStep);
      const double below = loss();
      values.set(r, i, value);
      ASSERT_NEAR(gradient.at(r, i), (above - below) / (2 * kDifferenceStep), kDifferenceError);
    }
  }
}

// Every instruction set of this machine, and the reference loops.
class RowsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_EQ(rf_set_target(GetParam().c_str()), RF_OK) << rf_last_error(); }
  void TearDown() override { rf_set_target(""); }
};

inline std::vector<std::string> row_targets() {
  std::vector<std::string> names = instruction_sets();
  names.push_back("ref");
  return names;
}

// What `run` leaves in `result` has the same bits with one thread and with several.
inline void expect_same_bits_with_threads(const std::function<std::vector<char>()>& run) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<char> one = run();
  for (const int several : {2, 5}) {
    omp_set_num_threads(several);
    EXPECT_EQ(run(), one) << several << " threads";
  }
  omp_set_num_threads(threads);
}

inline void expect_refused(rf_status status, const std::string& message) {
  EXPECT_EQ(status, RF_INVALID_ARGUMENT);
  EXPECT_NE(std::string(rf_last_error()).find(message), std::string::npos) << rf_last_error();
}

}  // namespace rf::tests

#endif
