// One linear layer as a test writes it: arrays with strides, forward and backward by whatever rf_linear_backend names
// or by the float64 loops.
#pragma once

#include <random>

#include "common/reference.h"
#include "core/rope_case.h"
#include "rf/linear.h"

namespace rf::tests {

struct PackedDeleter {
  void operator()(rf_linear_packed* packed) const { rf_linear_packed_destroy(packed); }
};
using Packed = std::unique_ptr<rf_linear_packed, PackedDeleter>;

inline constexpr rf_dtype kLayerTypes[] = {RF_F32, RF_BF16, RF_F16};

inline rf_dtype bias_dtype(rf_dtype dtype) { return dtype == RF_F64 ? RF_F64 : RF_F32; }

struct LinearLayerCase {
  rf_dtype dtype;
  int64_t rows, in, out, gap;  // every row is followed by `gap` elements that belong to nobody
  Elements x, weight, bias, y, dy, dx, dweight, dbias;

  LinearLayerCase(rf_dtype type, int64_t rows_, int64_t in_, int64_t out_, int64_t gap_ = 0)
      : LinearLayerCase(type, type, rows_, in_, out_, gap_) {}
  LinearLayerCase(rf_dtype type, rf_dtype weight_type, int64_t rows_, int64_t in_, int64_t out_, int64_t gap_)
      : dtype(type),
        rows(rows_),
        in(in_),
        out(out_),
        gap(gap_),
        x(type, rows * (in + gap)),
        weight(weight_type, out * (in + gap)),
        bias(bias_dtype(type), out),
        y(type, rows * (out + gap)),
        dy(y),
        dx(x),
        dweight(weight),
        dbias(bias) {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> value(-1, 1);
    for (Elements* elements : {&x, &weight, &bias, &dy}) {
      for (int64_t i = 0; i < elements->count(); ++i) elements->set(i, value(random));
    }
    for (Elements* elements : {&y, &dx, &dweight, &dbias}) {
      for (int64_t i = 0; i < elements->count(); ++i) elements->set(i, kUntouched);
    }
  }

  std::string text() const {
    return "dtype " + std::to_string(dtype) + " rows " + std::to_string(rows) + " in " + std::to_string(in) + " out " +
           std::to_string(out) + " gap " + std::to_string(gap);
  }

  // The same numbers in float64, or their magnitudes.
  enum class As { kValues, kMagnitudes };
  LinearLayerCase in_float64(As as) const {
    LinearLayerCase result(RF_F64, rows, in, out, gap);
    const auto copy = [as](const Elements& from, Elements& to) {
      for (int64_t i = 0; i < from.count(); ++i) to.set(i, as == As::kValues ? from.at(i) : std::abs(from.at(i)));
    };
    copy(x, result.x);
    copy(weight, result.weight);
    copy(bias, result.bias);
    copy(dy, result.dy);
    return result;
  }

  rf_linear_args args() {
    rf_linear_args args = {};
    args.struct_size = sizeof args;
    args.dtype = dtype, args.rows = rows, args.in = in, args.out = out;
    args.x = x.bytes.data(), args.weight = weight.bytes.data(), args.x_stride = args.weight_stride = in + gap;
    args.weight_dtype = weight.dtype == dtype ? rf_dtype{} : weight.dtype;
    args.bias = bias.bytes.data(), args.y = y.bytes.data(), args.y_stride = out + gap;
    return args;
  }

  rf_linear_grads grads() {
    rf_linear_grads grads = {};
    grads.struct_size = sizeof grads;
    grads.y = dy.bytes.data(), grads.y_stride = out + gap;
    grads.x = dx.bytes.data(), grads.weight = dweight.bytes.data(), grads.x_stride = grads.weight_stride = in + gap;
    grads.bias = dbias.bytes.data();
    return grads;
  }

  void run() {
    const rf_linear_args call = args();
    const rf_linear_grads gradients = grads();
    ASSERT_EQ(rf_linear_forward(&call), RF_OK) << rf_last_error();
    ASSERT_EQ(rf_linear_backward(&call, &gradients), RF_OK) << rf_last_error();
  }

  void run_reference() {
    ref::linear(args());
    ref::linear_backward(args(), grads());
  }

  // These rows alone, with packed weights.
  const Elements& forward_packed(const rf_linear_packed* packed, int64_t first, int64_t count,
                                 rf_linear_activation activation = RF_LINEAR_NONE, rf_gelu_form gate = {}) {
    rf_linear_args call = args();
    call.weight = nullptr, call.packed = packed, call.rows = count, call.activation = activation, call.gate = gate;
    call.x = static_cast<const char*>(call.x) + first * call.x_stride * bytes_of(dtype);
    call.y = static_cast<char*>(call.y) + first * call.y_stride * bytes_of(dtype);
    EXPECT_EQ(rf_linear_forward(&call), RF_OK) << rf_last_error();
    return y;
  }

  static constexpr double kUntouched = 77;
};

// got against want: kLinearEps of float32 times the sum of the magnitudes of the terms, and the rounding of a 16-bit
// result. rounding_of_terms: what each may be off before it is summed. Elements of gaps must be as they were.
inline void expect_close_sums(const Elements& got, const Elements& want, const Elements& magnitudes,
                              const std::string& what, double rounding_of_terms) {
  const bool narrow = bytes_of(got.dtype) == 2;
  for (int64_t i = 0; i < got.count(); ++i) {
    const double stored = narrow ? eps_of(got.dtype) * std::abs(want.at(i)) : 0;
    const double arithmetic = got.dtype == RF_F64 ? kEpsF64 : kEpsF32;
    ASSERT_NEAR(got.at(i), want.at(i),
                (kLinearEps * arithmetic + rounding_of_terms) * std::abs(magnitudes.at(i)) + stored)
        << what << " element " << i;
  }
}

// Of the forward alone.
inline void expect_right_forward(const LinearLayerCase& linear, const std::string& what) {
  LinearLayerCase want = linear.in_float64(LinearLayerCase::As::kValues);
  LinearLayerCase magnitudes = linear.in_float64(LinearLayerCase::As::kMagnitudes);
  ref::linear(want.args());
  ref::linear(magnitudes.args());
  expect_close_sums(linear.y, want.y, magnitudes.y, what, 0);
}

// rounding_of_weights: relative.
inline void expect_right(LinearLayerCase& linear, const std::string& what, double rounding_of_weights = 0) {
  LinearLayerCase want = linear.in_float64(LinearLayerCase::As::kValues);
  LinearLayerCase magnitudes = linear.in_float64(LinearLayerCase::As::kMagnitudes);
  want.run_reference();
  magnitudes.run_reference();
  expect_close_sums(linear.y, want.y, magnitudes.y, what + " y", rounding_of_weights);
  expect_close_sums(linear.dx, want.dx, magnitudes.dx, what + " dx", rounding_of_weights);
  expect_close_sums(linear.dweight, want.dweight, magnitudes.dweight, what + " dW", 0);
  expect_close_sums(linear.dbias, want.dbias, magnitudes.dbias, what + " db", 0);
}

}  // namespace rf::tests
