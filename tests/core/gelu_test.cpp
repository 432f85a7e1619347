// GELU: its forms against erf, erfc, tanh and exp of the C library, kernels of every instruction set against the
// float64 loops, whose gradients tests/ops/test_rows.py compares with torch's, and the promises and rules of the
// header.
#include "core/row_case.h"

namespace rf::tests {
namespace {

struct GeluCase {
  rf_gelu_form form;
  Rows x, y, dy, dx, bias, dbias;
  bool has_bias = true, has_factor = false;  // the factor is dy

  GeluCase(rf_dtype dtype, rf_gelu_form which, int64_t rows, int64_t columns, int64_t gap)
      : form(which),
        x(dtype, rows, columns, gap),
        y(x),
        dy(x),
        dx(x),
        bias(parameter_type(dtype), 1, columns, 0),
        dbias(bias) {
    x.fill(1, 0, 3);
    dy.fill(2, 0.1, 1);
    bias.fill(3, 0, 0.5);
  }
  std::vector<Rows*> arrays() { return {&x, &y, &dy, &dx, &bias, &dbias}; }
  std::vector<Rows*> results() { return {&y, &dx, &dbias}; }
  static constexpr auto kForward = rf_gelu_forward;
  static constexpr auto kBackward = rf_gelu_backward;

  rf_gelu_args args() {
    rf_gelu_args a = row_args<rf_gelu_args>(x);
    a.form = form;
    a.x = x.pointer(), a.y = y.pointer(), a.x_stride = a.y_stride = x.stride;
    a.bias = has_bias ? bias.pointer() : nullptr;
    a.factor = has_factor ? dy.pointer() : nullptr, a.factor_stride = dy.stride;
    return a;
  }
  rf_gelu_grads grads() {
    rf_gelu_grads g = {};
    g.struct_size = sizeof(g);
    g.y = dy.pointer(), g.x = dx.pointer(), g.y_stride = g.x_stride = x.stride;
    g.bias = dbias.pointer();
    return g;
  }
  double argument(int64_t r, int64_t c) const { return x.at(r, c) + (has_bias ? bias.at(0, c) : 0); }
  // What rounding x + bias adds to the result, in eps.
  double argument_error(int64_t r, int64_t c) const {
    return has_bias ? std::abs(x.at(r, c)) + std::abs(bias.at(0, c)) : 0;
  }
};

double gelu(rf_gelu_form form, double t) {
  if (form == RF_GELU_ERF) return t * std::erfc(-t / std::sqrt(2.0)) / 2;
  if (form == RF_GELU_SILU) return t > 0 ? t / (1 + std::exp(-t)) : t * std::exp(t) / (1 + std::exp(t));
  const double z = std::sqrt(2 / M_PI) * (t + 0.044715 * t * t * t);
  // (1 + tanh z) / 2, in a form that keeps the digits of the lower tail.
  return z > 0 ? t * (1 + std::tanh(z)) / 2 : t * std::exp(2 * z) / (1 + std::exp(2 * z));
}

// Exponentials below the smallest normal float are 0.
double flushed(double t) {
  return (1 + std::abs(t)) * static_cast<double>(std::numeric_limits<float>::min()) / kEpsF32;
}

constexpr rf_gelu_form kForms[] = {RF_GELU_ERF, RF_GELU_TANH, RF_GELU_SILU};

using Gelu = TargetTest;

// -16..16 in fine steps, so the middle, both tails and what is 0 are seen; no bias, so nothing but the curve errs.
TEST_P(Gelu, IsTheFormulaEverywhere) {
  for (const rf_gelu_form form : kForms) {
    for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16, RF_F64}) {
      GeluCase c(dtype, form, 3, 4001, 0);
      c.has_bias = false;
      for (int64_t i = 0; i < c.x.data.count(); ++i) {
        c.x.data.set(i, 32 * (static_cast<double>(i) / static_cast<double>(c.x.data.count()) - 0.5));
      }
      forward(c);
      Rows want = c.y.to(RF_F64);
      for (int64_t i = 0; i < want.data.count(); ++i) want.data.set(i, gelu(form, c.x.data.at(i)));
      const auto near = [&](int64_t row, int64_t column) {
        const double t = c.x.at(row, column), factor = c.has_factor ? std::max(1.0, std::abs(c.dy.at(row, column))) : 1;
        return std::abs(want.at(row, column)) * (1 + t * t) + flushed(t) * factor + smallest_of(dtype);
      };
      const std::string what = "dtype " + std::to_string(dtype) + " form " + std::to_string(form);
      expect_rows(c.y, want, what, near, kGeluEps);
      c.has_factor = true;
      forward(c);
      for (int64_t i = 0; i < want.data.count(); ++i) want.data.set(i, want.data.at(i) * c.dy.data.at(i));
      expect_rows(c.y, want, what + " with a factor", near, kGeluEps);
    }
  }
}

TEST_P(Gelu, KernelsGiveWhatTheFloat64LoopsGive) {
  for (const rf_gelu_form form : kForms) {
    for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16}) {
      for (const auto& [rows, columns, gap] :
           {std::array<int64_t, 3>{3, 1, 0}, {5, 7, 3}, {17, 67, 0}, {100, 129, 1}, {0, 8, 0}, {8, 0, 0}}) {
        GeluCase c(dtype, form, rows, columns, gap);
        forward(c);
        backward(c);
        GeluCase want = in_float64(c);
        forward(want);
        backward(want);
        const std::string what =
            "dtype " + std::to_string(dtype) + " form " + std::to_string(form) + " columns " + std::to_string(columns);
        const auto spread = [&](int64_t r, int64_t i) { return 1 + std::pow(want.argument(r, i), 2); };
        expect_rows(c.y, want.y, what + " y", [&](int64_t r, int64_t i) {
          return std::abs(want.y.at(r, i)) * spread(r, i) + c.argument_error(r, i) + smallest_of(dtype);
        });
        // |c(t)| <= 1, |t c'(t)| (1 + t^2) <= 2 and |gelu''| <= 1.
        const auto slope_error = [&](int64_t r, int64_t i) {
          return std::abs(c.dy.at(r, i)) * (3 + c.argument_error(r, i)) + smallest_of(dtype);
        };
        expect_rows(c.dx, want.dx, what + " dx", slope_error);
        std::vector<double> sums(static_cast<size_t>(columns));
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < columns; ++i) sums[i] += slope_error(r, i);
        }
        expect_rows(c.dbias, want.dbias, what + " dbias", [&](int64_t, int64_t i) { return sums[i]; });
      }
    }
  }
}

TEST_P(Gelu, ResultsMayGoOverInputs) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F64}) {
    GeluCase c(dtype, RF_GELU_ERF, 33, 71, 0);
    forward(c);
    backward(c);
    GeluCase in_place = c;
    rf_gelu_args args = in_place.args();
    rf_gelu_grads grads = in_place.grads();
    grads.x = in_place.dy.pointer();
    ASSERT_EQ(rf_gelu_backward(&args, &grads), RF_OK);
    EXPECT_EQ(in_place.dy.data.bytes, c.dx.data.bytes);
    args.y = in_place.x.pointer();
    ASSERT_EQ(rf_gelu_forward(&args), RF_OK);
    EXPECT_EQ(in_place.x.data.bytes, c.y.data.bytes);
  }
}

TEST_P(Gelu, ThreadsGiveTheSameBits) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16}) {
    GeluCase c(dtype, RF_GELU_TANH, 331, 100, 0);
    expect_same_bits_with_threads(c);
  }
}

TEST_P(Gelu, EndsOfTheRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const rf_gelu_form form : kForms) {
    GeluCase c(RF_F32, form, 1, 20, 0);
    c.has_bias = false;
    const double ends[] = {3e38, -3e38, std::nan(""), infinity};
    for (int64_t i = 0; i < 4; ++i) c.x.set(0, i, ends[i]);
    forward(c);
    backward(c);
    EXPECT_EQ(c.y.at(0, 0), c.x.at(0, 0));
    EXPECT_EQ(c.y.at(0, 1), 0);
    EXPECT_TRUE(std::isnan(c.y.at(0, 2)));
    EXPECT_EQ(c.y.at(0, 3), infinity);
    if (GetParam() == "ref") continue;  // c' is formed from squares there
    EXPECT_EQ(c.dx.at(0, 0), c.dy.at(0, 0));
    EXPECT_EQ(c.dx.at(0, 1), 0);
    EXPECT_TRUE(std::isnan(c.dx.at(0, 2)));
    EXPECT_EQ(c.dx.at(0, 3), c.dy.at(0, 3));
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Gelu, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

// What all operations on rows check is in norm_test.cpp.
TEST(GeluErrors, RulesAreNamed) {
  GeluCase c(RF_BF16, RF_GELU_ERF, 4, 8, 0);
  const rf_gelu_args args = c.args();
  expect_rules<rf_gelu_args>(
      args, rf_gelu_forward,
      {{[](auto& a) { a.form = static_cast<rf_gelu_form>(0); },
        "[gelu] form must be RF_GELU_ERF, RF_GELU_TANH or RF_GELU_SILU, got 0"},
       {[](auto& a) { a.factor = a.x, a.factor_stride = 7; },
        "[gelu] factor_stride must be at least columns = 8, got 7"},
       {[](auto& a) { a.rows = -1; }, "[gelu] rows must be >= 0, got -1"},
       {[](auto& a) { a.x = nullptr; }, "[gelu] x must not be NULL, got NULL"},
       {[](auto& a) { a.x_stride = -8; }, "[gelu] x_stride must be at least columns = 8, got -8"},
       {[](auto& a) { a.y_stride = 7; }, "[gelu] y_stride must be at least columns = 8, got 7"},
       {[](auto& a) { a.y = static_cast<char*>(a.y) + 1; }, "[gelu] y must be aligned to its element of 2 bytes"},
       {[](auto& a) { a.bias = static_cast<const char*>(a.bias) + 2; },
        "[gelu] bias must be aligned to its element of 4 bytes"}});
  expect_rules<rf_gelu_grads>(
      c.grads(), [&](const rf_gelu_grads* grads) { return rf_gelu_backward(&args, grads); },
      {{[](auto& g) { g.y = nullptr; }, "[gelu] grads->y must not be NULL, got NULL"},
       {[](auto& g) { g.x_stride = 2; }, "[gelu] grads->x_stride must be at least columns = 8, got 2"},
       {[](auto& g) { g.bias = static_cast<char*>(g.bias) + 2; }, "[gelu] grads->bias must be aligned"}});
}

}  // namespace
}  // namespace rf::tests
