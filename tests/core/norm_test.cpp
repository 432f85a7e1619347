// Norms: forward against the formula, kernels of every instruction set against the float64 loops, whose gradients
// tests/ops/test_rows.py compares with torch's, and the promises and rules of the header.
#include "core/row_case.h"

namespace rf::tests {
namespace {

struct NormShape {
  rf_norm_kind kind = RF_NORM_LAYER;
  int64_t rows = 0, columns = 0, gap = 0;
  double dropout = 0;
  bool has_bias = true, has_residual = true, has_gamma = true, has_beta = true;
};

// A call with all its arrays.
struct NormCase {
  NormShape shape;
  Rows x, residual, y, sum, dy, dx, dresidual, bias, gamma, beta, dbias, dgamma, dbeta;

  NormCase(rf_dtype dtype, const NormShape& s) : NormCase(dtype, dtype, s) {}
  NormCase(rf_dtype dtype, rf_dtype stream, const NormShape& s)
      : shape(s),
        x(dtype, s.rows, s.columns, s.gap),
        residual(stream, s.rows, s.columns, s.gap),
        y(residual),
        sum(residual),
        dy(residual),
        dx(x),
        dresidual(residual),
        bias(parameter_type(dtype), 1, s.columns, 0),
        gamma(bias),
        beta(bias),
        dbias(bias),
        dgamma(bias),
        dbeta(bias) {
    x.fill(1, 3, 1);
    residual.fill(2, -0.5, 1);
    dy.fill(3, 0.1, 1);
    bias.fill(4, 0, 0.3);
    gamma.fill(5, 1, 0.3);
    beta.fill(6, 0, 0.3);
  }
  rf_dtype dtype() const { return x.data.dtype; }

  std::vector<Rows*> arrays() {
    return {&x, &residual, &y, &sum, &dy, &dx, &dresidual, &bias, &gamma, &beta, &dbias, &dgamma, &dbeta};
  }
  std::vector<Rows*> results() { return {&y, &sum, &dx, &dresidual, &dbias, &dgamma, &dbeta}; }
  static constexpr auto kForward = rf_norm_forward;
  static constexpr auto kBackward = rf_norm_backward;

  rf_norm_args args() {
    rf_norm_args a = row_args<rf_norm_args>(x);
    a.kind = shape.kind;
    a.x = x.pointer(), a.y = y.pointer(), a.sum = sum.pointer();
    a.residual = shape.has_residual ? residual.pointer() : nullptr;
    a.x_stride = a.residual_stride = a.y_stride = a.sum_stride = x.stride;
    a.bias = shape.has_bias ? bias.pointer() : nullptr;
    a.gamma = shape.has_gamma ? gamma.pointer() : nullptr;
    a.beta = shape.has_beta ? beta.pointer() : nullptr;
    a.dropout = shape.dropout, a.seed = 7, a.stream = 9, a.eps = 1e-5;
    a.stream_dtype = y.data.dtype == x.data.dtype ? rf_dtype{} : y.data.dtype;
    return a;
  }
  rf_norm_grads grads() {
    rf_norm_grads g = {};
    g.struct_size = sizeof(g);
    g.y = dy.pointer(), g.x = dx.pointer(), g.residual = dresidual.pointer();
    g.y_stride = g.x_stride = g.residual_stride = x.stride;
    g.bias = dbias.pointer(), g.gamma = dgamma.pointer(), g.beta = dbeta.pointer();
    return g;
  }
  double gamma_at(int64_t c) const { return shape.has_gamma ? gamma.at(0, c) : 1; }
};

// dropout's factor of every element, by rf_dropout.
std::vector<double> factors(NormCase& c) {
  std::vector<double> ones(static_cast<size_t>(c.shape.rows * c.shape.columns), 1.0);
  const auto count = static_cast<int64_t>(ones.size());
  EXPECT_EQ(rf_dropout(RF_F64, ones.data(), ones.data(), count, c.shape.dropout, c.args().seed, c.args().stream),
            RF_OK);
  return ones;
}

// The formula of the header for a row, and the sizes that bounds of errors are made of.
struct NormRow {
  std::vector<double> s, h;
  double r = 0;
  double terms = 0;                               // the largest |residual| + |dropout| (|x| + |bias|)
  double largest = 0;                             // of |h|
  double error() const { return 1 + terms * r; }  // of h, in eps
};

NormRow normal_row(NormCase& c, const std::vector<double>& factor, int64_t row) {
  NormRow result;
  const auto n = static_cast<double>(c.shape.columns);
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < c.shape.columns; ++i) {
    const double bias = c.shape.has_bias ? c.bias.at(0, i) : 0;
    const double residual = c.shape.has_residual ? c.residual.at(row, i) : 0;
    const double f = factor[row * c.shape.columns + i];
    result.h.push_back(residual + f * (c.x.at(row, i) + bias));
    result.terms = std::max(result.terms, std::abs(residual) + f * (std::abs(c.x.at(row, i)) + std::abs(bias)));
    mean += result.h.back() / n;
  }
  result.s = result.h;
  if (c.shape.kind == RF_NORM_RMS) mean = 0;
  for (double& value : result.h) {
    value -= mean;
    variance += value * value / n;
  }
  result.r = 1 / std::sqrt(variance + c.args().eps);
  for (double& value : result.h) {
    value *= result.r;
    result.largest = std::max(result.largest, std::abs(value));
  }
  return result;
}

void expect_forward(NormCase& c, const std::string& what) {
  NormCase want = in_float64(c);
  const std::vector<double> factor = factors(c);
  std::vector<double> errors, terms;
  for (int64_t r = 0; r < c.shape.rows; ++r) {
    const NormRow row = normal_row(c, factor, r);
    errors.push_back(row.largest + row.error());
    terms.push_back(row.terms);
    for (int64_t i = 0; i < c.shape.columns; ++i) {
      const double beta = c.shape.has_beta ? c.beta.at(0, i) : 0;
      want.sum.set(r, i, row.s[i]);
      want.y.set(r, i, row.h[i] * c.gamma_at(i) + beta);
    }
  }
  expect_rows(c.y, want.y, what + " y", [&](int64_t r, int64_t i) {
    return errors[r] * std::abs(c.gamma_at(i)) + std::abs(c.shape.has_beta ? c.beta.at(0, i) : 0);
  });
  expect_rows(c.sum, want.sum, what + " sum", [&](int64_t r, int64_t) { return terms[r]; });
}

// Against the float64 loops. A bound of |ds| in eps, with G the largest |dy gamma| of the row and |h| at most H with an
// error of E: r G (1 + H) E from ds = r (g - mean(g) - h mean(g h)) and mean |g h| <= G.
void expect_backward(NormCase& c, const std::string& what) {
  NormCase want = in_float64(c);
  backward(want);
  const std::vector<double> factor = factors(c);
  const auto n = static_cast<size_t>(c.shape.columns);
  std::vector<double> ds, bias_error(n), gamma_error(n), beta_error(n);
  for (int64_t r = 0; r < c.shape.rows; ++r) {
    const NormRow row = normal_row(c, factor, r);
    double largest = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto column = static_cast<int64_t>(i);
      largest = std::max(largest, std::abs(c.dy.at(r, column) * c.gamma_at(column)));
    }
    ds.push_back(row.r * largest * (1 + row.largest) * row.error());
    for (size_t i = 0; i < n; ++i) {
      const double given = std::abs(c.dy.at(r, static_cast<int64_t>(i)));
      bias_error[i] += ds.back() * factor[static_cast<size_t>(r) * n + i];
      gamma_error[i] += given * (std::abs(row.h[i]) + row.error());
      beta_error[i] += given;
    }
  }
  const auto of_column = [](const std::vector<double>& errors) {
    return [&errors](int64_t, int64_t i) { return errors[i]; };
  };
  expect_rows(c.dresidual, want.dresidual, what + " dresidual", [&](int64_t r, int64_t) { return ds[r]; });
  expect_rows(c.dx, want.dx, what + " dx", [&](int64_t r, int64_t i) {
    return ds[r] * factor[static_cast<size_t>(r) * n + static_cast<size_t>(i)];
  });
  expect_rows(c.dbias, want.dbias, what + " dbias", of_column(bias_error));
  expect_rows(c.dgamma, want.dgamma, what + " dgamma", of_column(gamma_error));
  expect_rows(c.dbeta, want.dbeta, what + " dbeta", of_column(beta_error));
}

std::string name_of(const NormCase& c) {
  return "dtype " + std::to_string(c.dtype()) + " stream " + std::to_string(c.y.data.dtype) + " kind " +
         std::to_string(c.shape.kind) + " " + std::to_string(c.shape.rows) + " x " + std::to_string(c.shape.columns);
}

using Norm = TargetTest;

TEST_P(Norm, ForwardIsTheFormulaAndBackwardThatOfTheFloat64Loops) {
  constexpr std::pair<rf_dtype, rf_dtype> kTypes[] = {{RF_F32, RF_F32}, {RF_BF16, RF_BF16}, {RF_F16, RF_F16},
                                                      {RF_F64, RF_F64}, {RF_BF16, RF_F32},  {RF_F16, RF_F32}};
  for (const auto& [dtype, stream] : kTypes) {
    for (const NormShape& shape : {NormShape{RF_NORM_RMS, 3, 1, 0, 0.5},
                                   {RF_NORM_LAYER, 5, 7, 2, 0.1},
                                   {RF_NORM_LAYER, 17, 67, 0, 0.1},
                                   {RF_NORM_RMS, 2, 768, 1, 0},
                                   {RF_NORM_RMS, 150, 129, 3, 0.3},
                                   {RF_NORM_LAYER, 9, 64, 0, 0, false, false, false, false},
                                   {RF_NORM_RMS, 4, 33, 0, 0.2, false, true, true, false},
                                   {RF_NORM_LAYER, 0, 16, 0, 0.2},
                                   {RF_NORM_LAYER, 4, 0, 0, 0.2}}) {
      NormCase c(dtype, stream, shape);
      forward(c);
      expect_forward(c, name_of(c));
      backward(c);
      expect_backward(c, name_of(c));
    }
  }
}

TEST_P(Norm, ResultsMayGoOverInputs) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F64}) {
    NormCase c(dtype, {RF_NORM_LAYER, 33, 71, 0, 0.1});
    forward(c);
    backward(c);
    NormCase in_place = c;
    rf_norm_args args = in_place.args();
    args.y = in_place.residual.pointer();
    ASSERT_EQ(rf_norm_forward(&args), RF_OK);
    EXPECT_EQ(in_place.residual.data.bytes, c.y.data.bytes);
    in_place.residual = c.residual;
    args = in_place.args();
    args.sum = in_place.residual.pointer();
    ASSERT_EQ(rf_norm_forward(&args), RF_OK);
    EXPECT_EQ(in_place.y.data.bytes, c.y.data.bytes);
    EXPECT_EQ(in_place.residual.data.bytes, c.sum.data.bytes);
    in_place.residual = c.residual;
    rf_norm_grads grads = in_place.grads();
    grads.x = in_place.dy.pointer();
    grads.residual = in_place.residual.pointer();
    ASSERT_EQ(rf_norm_backward(&args, &grads), RF_OK);
    EXPECT_EQ(in_place.dy.data.bytes, c.dx.data.bytes);
    EXPECT_EQ(in_place.residual.data.bytes, c.dresidual.data.bytes);
  }
}

TEST_P(Norm, ThreadsGiveTheSameBits) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16}) {
    NormCase c(dtype, {RF_NORM_LAYER, 331, 100, 0, 0.1});
    expect_same_bits_with_threads(c);
  }
}

TEST_P(Norm, ANotANumberStaysInItsRow) {
  NormCase c(RF_F32, {RF_NORM_LAYER, 3, 20, 0, 0});
  c.x.set(1, 4, std::nan(""));
  forward(c);
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(std::isfinite(c.y.at(0, i)) && std::isfinite(c.y.at(2, i)));
    EXPECT_TRUE(std::isnan(c.y.at(1, i)));
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Norm, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

TEST(NormErrors, RulesAreNamed) {
  NormCase c(RF_F32, {RF_NORM_LAYER, 4, 8, 0, 0});
  const rf_norm_args args = c.args();
  expect_rules<rf_norm_args>(
      args, rf_norm_forward,
      {{[](auto& a) { a.dtype = static_cast<rf_dtype>(0); },
        "[norm] dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got 0"},
       {[](auto& a) { a.kind = static_cast<rf_norm_kind>(0); },
        "[norm] kind must be RF_NORM_LAYER or RF_NORM_RMS, got 0"},
       {[](auto& a) { a.rows = -1; }, "[norm] rows must be >= 0, got -1"},
       {[](auto& a) { a.columns = -2; }, "[norm] columns must be >= 0, got -2"},
       {[](auto& a) { a.rows = INT64_MAX / 4; }, "[norm] the size of [rows, columns] in bytes must fit in int64"},
       {[](auto& a) { a.x_stride = 7; }, "[norm] x_stride must be at least columns = 8, got 7"},
       {[](auto& a) { a.y_stride = INT64_MAX / 4; }, "[norm] the size of y in bytes must fit in int64"},
       {[](auto& a) { a.sum_stride = 7; }, "[norm] sum_stride must be at least columns = 8, got 7"},
       {[](auto& a) { a.x = nullptr; }, "[norm] x must not be NULL, got NULL"},
       {[](auto& a) { a.y = nullptr; }, "[norm] y must not be NULL, got NULL"},
       {[](auto& a) { a.x = static_cast<const char*>(a.x) + 1; }, "[norm] x must be aligned to its element of 4 bytes"},
       {[](auto& a) { a.residual = static_cast<const char*>(a.residual) + 2; }, "[norm] residual must be aligned"},
       {[](auto& a) { a.gamma = static_cast<const char*>(a.gamma) + 1; }, "[norm] gamma must be aligned"},
       {[](auto& a) { a.eps = -1; }, "[norm] eps must be >= 0 and finite, got -1"},
       {[](auto& a) { a.eps = std::nan(""); }, "[norm] eps must be >= 0 and finite, got nan"},
       {[](auto& a) { a.dropout = 1; }, "[norm] dropout must be in [0, 1 - 2^-17), got 1"},
       {[](auto& a) { a.stream_dtype = RF_BF16; },
        "[norm] stream_dtype must be 0, dtype, or RF_F32 where dtype is RF_BF16"}});
  expect_rules<rf_norm_grads>(
      c.grads(), [&](const rf_norm_grads* grads) { return rf_norm_backward(&args, grads); },
      {{[](auto& g) { g.y = nullptr; }, "[norm] grads->y must not be NULL, got NULL"},
       {[](auto& g) { g.x_stride = 3; }, "[norm] grads->x_stride must be at least columns = 8, got 3"},
       {[](auto& g) { g.residual = g.x; }, "[norm] grads->x and grads->residual must be different arrays"},
       {[](auto& g) { g.bias = static_cast<char*>(g.bias) + 1; }, "[norm] grads->bias must be aligned"}});
}

}  // namespace
}  // namespace rf::tests
