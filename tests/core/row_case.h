// Arrays of rows as the tests of rf/rows.h write them: filled, copied to float64, compared element by element.
#pragma once

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
inline void expect_rows(const Rows& got, const Rows& want, const std::string& what,
                        const std::function<double(int64_t, int64_t)>& magnitude, double bound = kRowEps) {
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

// The fields that the arguments of all operations on rows have.
template <class Args>
Args row_args(const Rows& x) {
  Args args = {};
  args.struct_size = sizeof(args), args.dtype = x.data.dtype;
  args.rows = x.rows, args.columns = x.columns;
  return args;
}

// A call with its arrays: Case has args() and grads(), kForward and kBackward that take them, arrays(), all arrays, and
// results(), those that forward and backward write.
template <class Case>
void forward(Case& c) {
  const auto args = c.args();
  ASSERT_EQ(Case::kForward(&args), RF_OK) << rf_last_error();
}
template <class Case>
void backward(Case& c) {
  const auto args = c.args();
  const auto grads = c.grads();
  ASSERT_EQ(Case::kBackward(&args, &grads), RF_OK) << rf_last_error();
}

// The same numbers in float64.
template <class Case>
Case in_float64(Case c) {
  for (Rows* rows : c.arrays()) *rows = rows->to(RF_F64);
  return c;
}

// Results have the same bits with one thread and with several. TargetTest sets their number back.
template <class Case>
void expect_same_bits_with_threads(Case& c) {
  const auto run = [&c] {
    forward(c);
    backward(c);
    std::vector<char> all;
    for (const Rows* rows : c.results()) all.insert(all.end(), rows->data.bytes.begin(), rows->data.bytes.end());
    return all;
  };
  omp_set_num_threads(1);
  const std::vector<char> one = run();
  for (const int several : {2, 5}) {
    omp_set_num_threads(several);
    EXPECT_EQ(run(), one) << several << " threads";
  }
}

// `run` refuses each spoilt copy of `args` with the text beside it.
template <class Args>
using Spoilt = std::vector<std::pair<void (*)(Args&), const char*>>;
template <class Args, class Run>
void expect_rules(const Args& args, const Run& run, const Spoilt<Args>& rules) {
  for (const auto& [spoil, message] : rules) {
    Args spoilt = args;
    spoil(spoilt);
    expect_refused(run(&spoilt), message);
  }
}

}  // namespace rf::tests
