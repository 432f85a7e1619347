// Softmax and cross-entropy: the loops and the kernels of every instruction set against the formulas, and the promises
// and rules of the header.
#include "core/row_case.h"

namespace rf::tests {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<int64_t, 3> kShapes[] = {{3, 1, 0}, {5, 7, 3}, {17, 67, 0}, {40, 129, 1}, {2, 9001, 0}, {0, 8, 0}};

struct SoftmaxCase {
  Rows x, y, dy, dx;

  SoftmaxCase(rf_dtype dtype, int64_t rows, int64_t columns, int64_t gap)
      : x(dtype, rows, columns, gap), y(x), dy(x), dx(x) {
    x.fill(1, 5, 4);
    dy.fill(2, 0.1, 1);
  }
  std::vector<Rows*> arrays() { return {&x, &y, &dy, &dx}; }
  std::vector<Rows*> results() { return {&y, &dx}; }
  static constexpr auto kForward = rf_softmax_forward;
  static constexpr auto kBackward = rf_softmax_backward;

  rf_softmax_args args() {
    rf_softmax_args a = row_args<rf_softmax_args>(x);
    a.x = x.pointer(), a.y = y.pointer(), a.x_stride = a.y_stride = x.stride;
    return a;
  }
  rf_softmax_grads grads() {
    rf_softmax_grads g = {};
    g.struct_size = sizeof(g);
    g.y = dy.pointer(), g.x = dx.pointer(), g.y_stride = g.x_stride = x.stride;
    return g;
  }
};

// The largest |x| of each row.
std::vector<double> largest_magnitudes(const Rows& x) {
  std::vector<double> largest(static_cast<size_t>(x.rows));
  for (int64_t r = 0; r < x.rows; ++r) {
    double& row = largest[r];
    for (int64_t c = 0; c < x.columns; ++c) row = std::max(row, std::abs(x.at(r, c)));
  }
  return largest;
}

using Softmax = TargetTest;

TEST_P(Softmax, IsTheFormula) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16, RF_F64}) {
    for (const auto& [rows, columns, gap] : kShapes) {
      SoftmaxCase c(dtype, rows, columns, gap);
      forward(c);
      backward(c);
      SoftmaxCase want = in_float64(c);
      const std::vector<double> largest = largest_magnitudes(c.x);
      std::vector<double> sums(static_cast<size_t>(rows));
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < columns; ++i) {
          sum += std::exp(c.x.at(r, i));
          dot += c.y.at(r, i) * c.dy.at(r, i);
        }
        for (int64_t i = 0; i < columns; ++i) {
          want.y.set(r, i, std::exp(c.x.at(r, i)) / sum);
          want.dx.set(r, i, c.y.at(r, i) * (c.dy.at(r, i) - dot));
          sums[r] += std::abs(c.y.at(r, i) * c.dy.at(r, i));
        }
      }
      const std::string what = "dtype " + std::to_string(dtype) + " columns " + std::to_string(columns);
      // The exponent x - largest is rounded: e^x has a relative error of |x - largest| eps.
      expect_rows(c.y, want.y, what + " y",
                  [&](int64_t r, int64_t i) { return want.y.at(r, i) * (1 + 2 * largest[r]) + smallest_of(dtype); });
      expect_rows(c.dx, want.dx, what + " dx", [&](int64_t r, int64_t i) {
        return c.y.at(r, i) * (std::abs(c.dy.at(r, i)) + sums[r]) + smallest_of(dtype);
      });
    }
  }
}

TEST_P(Softmax, RowsWithoutAFiniteElement) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F64}) {
    SoftmaxCase c(dtype, 4, 37, 0);
    for (int64_t i = 0; i < 37; ++i) {
      c.x.set(0, i, -kInfinity);
      c.x.set(1, i, std::nan(""));
      if (i != 5) c.x.set(2, i, -kInfinity);
    }
    c.x.set(3, 0, std::nan(""));
    forward(c);
    backward(c);
    for (int64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(c.y.at(0, i), 0);
      EXPECT_EQ(c.dx.at(0, i), 0);
      EXPECT_TRUE(std::isnan(c.y.at(1, i)));
      EXPECT_EQ(c.y.at(2, i), i == 5 ? 1 : 0);
      EXPECT_TRUE(std::isnan(c.y.at(3, i)));
    }
  }
}

TEST_P(Softmax, ResultsMayGoOverInputsAndThreadsGiveTheSameBits) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F64}) {
    SoftmaxCase c(dtype, 300, 71, 0);
    expect_same_bits_with_threads(c);
    SoftmaxCase in_place = c;
    rf_softmax_args args = in_place.args();
    args.y = in_place.x.pointer();
    ASSERT_EQ(rf_softmax_forward(&args), RF_OK);
    EXPECT_EQ(in_place.x.data.bytes, c.y.data.bytes);
    rf_softmax_grads grads = in_place.grads();
    grads.x = in_place.dy.pointer();
    ASSERT_EQ(rf_softmax_backward(&args, &grads), RF_OK);
    EXPECT_EQ(in_place.dy.data.bytes, c.dx.data.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Softmax, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

// What all operations on rows check is in norm_test.cpp.
TEST(SoftmaxErrors, RulesAreNamed) {
  SoftmaxCase c(RF_F32, 4, 8, 0);
  const rf_softmax_args args = c.args();
  expect_rules<rf_softmax_args>(
      args, rf_softmax_forward,
      {{[](auto& a) { a.rows = -1; }, "[softmax] rows must be >= 0, got -1"},
       {[](auto& a) { a.x = nullptr; }, "[softmax] x must not be NULL, got NULL"},
       {[](auto& a) { a.y_stride = 7; }, "[softmax] y_stride must be at least columns = 8, got 7"}});
  expect_rules<rf_softmax_grads>(c.grads(),
                                 [&](const rf_softmax_grads* grads) { return rf_softmax_backward(&args, grads); },
                                 {{[](auto& g) { g.x = nullptr; }, "[softmax] grads->x must not be NULL, got NULL"},
                                  {[](auto& g) { g.y = nullptr; }, "[softmax] grads->y must not be NULL, got NULL"}});
}

// ---- cross-entropy ----

constexpr int64_t kIgnored = -100;

struct EntropyCase {
  Rows logits, dlogits, loss, log_sum, dloss;
  std::vector<int64_t> targets;

  EntropyCase(rf_dtype dtype, int64_t rows, int64_t columns, int64_t gap)
      : logits(dtype, rows, columns, gap),
        dlogits(logits),
        loss(parameter_type(dtype), rows, 1, 0),
        log_sum(RF_F64, rows, 1, 0),
        dloss(loss) {
    logits.fill(1, 2, 4);
    dloss.fill(2, 0.5, 0.2);
    for (int64_t r = 0; r < rows; ++r) targets.push_back(r % 4 == 3 ? kIgnored : r * 7919 % columns);
  }
  std::vector<Rows*> arrays() { return {&logits, &dlogits, &loss, &log_sum, &dloss}; }
  std::vector<Rows*> results() { return {&loss, &dlogits}; }
  static constexpr auto kForward = rf_cross_entropy_forward;
  static constexpr auto kBackward = rf_cross_entropy_backward;

  rf_cross_entropy_args args() {
    rf_cross_entropy_args a = row_args<rf_cross_entropy_args>(logits);
    a.logits = logits.pointer(), a.logits_stride = logits.stride;
    a.targets = targets.data(), a.ignore_index = kIgnored;
    a.loss = loss.pointer(), a.log_sum = static_cast<double*>(log_sum.pointer());
    return a;
  }
  rf_cross_entropy_grads grads() {
    rf_cross_entropy_grads g = {};
    g.struct_size = sizeof(g);
    g.loss = dloss.pointer(), g.loss_stride = 1;
    g.logits = dlogits.pointer(), g.logits_stride = logits.stride;
    return g;
  }
  bool is_ignored(int64_t row) const { return targets[row] == kIgnored; }
};

using CrossEntropy = TargetTest;

TEST_P(CrossEntropy, IsTheFormula) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16, RF_F64}) {
    for (const auto& [rows, columns, gap] : kShapes) {
      EntropyCase c(dtype, rows, columns, gap);
      forward(c);
      backward(c);
      EntropyCase want = in_float64(c);
      Rows loss = want.loss, log_sum = loss;
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < columns; ++i) sum += std::exp(c.logits.at(r, i));
        log_sum.set(r, 0, std::log(sum));
        const int64_t target = c.targets[r];
        loss.set(r, 0, c.is_ignored(r) ? 0 : std::log(sum) - c.logits.at(r, target));
        for (int64_t i = 0; i < columns; ++i) {
          const double p = std::exp(c.logits.at(r, i)) / sum;
          want.dlogits.set(r, i, c.is_ignored(r) ? 0 : (p - (i == target ? 1 : 0)) * c.dloss.at(r, 0));
        }
      }
      // Relative errors of the exponentials are absolute ones of the logarithm of their sum.
      const std::vector<double> largest = largest_magnitudes(c.logits);
      const auto magnitude = [&](int64_t r, int64_t) { return 1 + 2 * largest[r]; };
      const std::string what = "dtype " + std::to_string(dtype) + " columns " + std::to_string(columns);
      expect_rows(c.log_sum.to(c.loss.data.dtype), log_sum, what + " log_sum", magnitude);
      expect_rows(c.loss, loss, what + " loss",
                  [&](int64_t r, int64_t) { return c.is_ignored(r) ? 0 : magnitude(r, 0); });
      expect_rows(c.dlogits, want.dlogits, what + " dlogits", [&](int64_t r, int64_t i) {
        if (c.is_ignored(r)) return 0.0;
        const bool target = i == c.targets[r];
        const double p = std::exp(c.logits.at(r, i) - log_sum.at(r, 0));
        const double spread = 1 + 3 * largest[r];
        return std::abs(c.dloss.at(r, 0)) * (p * spread + (target ? 1 : 0)) + smallest_of(dtype);
      });
    }
  }
}

// What is added to all logits of a row changes neither loss nor gradient: bounds are of differences between logits.
TEST_P(CrossEntropy, LargeLogitsCostNoDigits) {
  for (const double added : {1e2, -1e4, 1e6}) {
    EntropyCase c(RF_F32, 6, 1000, 0);
    for (int64_t r = 0; r < 6; ++r) {
      for (int64_t i = 0; i < 1000; ++i) c.logits.set(r, i, c.logits.at(r, i) + added);
    }
    forward(c);
    backward(c);
    EntropyCase want = in_float64(c);
    forward(want);
    backward(want);
    constexpr double kSpread = 40;  // of 1000 numbers with a deviation of 4, with room
    const auto magnitude = [&](int64_t r, int64_t) { return c.is_ignored(r) ? 0 : kSpread; };
    expect_rows(c.loss, want.loss, "loss, added " + std::to_string(added), magnitude);
    expect_rows(c.dlogits, want.dlogits, "dlogits, added " + std::to_string(added), magnitude);
  }
}

TEST_P(CrossEntropy, GradientsMayGoOverTheLogitsAndThreadsGiveTheSameBits) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F64}) {
    EntropyCase c(dtype, 30, 1003, 0);
    expect_same_bits_with_threads(c);
    EntropyCase in_place = c;
    const rf_cross_entropy_args args = in_place.args();
    rf_cross_entropy_grads grads = in_place.grads();
    grads.logits = in_place.logits.pointer();
    ASSERT_EQ(rf_cross_entropy_backward(&args, &grads), RF_OK);
    EXPECT_EQ(in_place.logits.data.bytes, c.dlogits.data.bytes);
  }
}

TEST_P(CrossEntropy, OneGradientForAllRows) {
  EntropyCase c(RF_F32, 9, 50, 0);
  for (int64_t r = 0; r < 9; ++r) c.dloss.set(r, 0, 0.25);
  forward(c);
  backward(c);
  EntropyCase shared = c;
  const rf_cross_entropy_args args = shared.args();
  rf_cross_entropy_grads grads = shared.grads();
  grads.loss_stride = 0;
  for (int64_t r = 1; r < 9; ++r) shared.dloss.set(r, 0, std::nan(""));
  ASSERT_EQ(rf_cross_entropy_backward(&args, &grads), RF_OK);
  EXPECT_EQ(shared.dlogits.data.bytes, c.dlogits.data.bytes);
}

TEST_P(CrossEntropy, InfiniteAndLargeLogits) {
  EntropyCase c(RF_F32, 3, 9000, 0);
  c.targets = {8999, 1, kIgnored};
  for (int64_t i = 0; i < 9000; ++i) {
    c.logits.set(0, i, i < 5000 ? -kInfinity : 1000);  // pieces of a row without and with a finite logit
    c.logits.set(2, i, std::nan(""));
  }
  c.logits.set(1, 8000, std::nan(""));
  forward(c);
  backward(c);
  EXPECT_NEAR(c.loss.at(0, 0), std::log(4000.0), kRowEps * kEpsF32 * 1000);
  EXPECT_EQ(c.dlogits.at(0, 0), 0);
  EXPECT_TRUE(std::isnan(c.loss.at(1, 0)));
  EXPECT_EQ(c.loss.at(2, 0), 0);
  EXPECT_EQ(c.dlogits.at(2, 17), 0);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, CrossEntropy, testing::ValuesIn(instruction_sets_and_ref()), name_of_target);

TEST(CrossEntropyErrors, RulesAreNamed) {
  EntropyCase c(RF_F32, 4, 8, 0);
  const rf_cross_entropy_args args = c.args();
  expect_rules<rf_cross_entropy_args>(
      args, rf_cross_entropy_forward,
      {{[](auto& a) { a.columns = 0; }, "[cross_entropy] columns must be >= 1, got 0"},
       {[](auto& a) { a.logits = nullptr; }, "[cross_entropy] logits must not be NULL, got NULL"},
       {[](auto& a) { a.logits_stride = 7; }, "[cross_entropy] logits_stride must be at least columns = 8, got 7"},
       {[](auto& a) { a.targets = nullptr; }, "[cross_entropy] targets must not be NULL, got NULL"},
       {[](auto& a) { a.loss = nullptr; }, "[cross_entropy] loss must not be NULL, got NULL"},
       {[](auto& a) { a.log_sum = reinterpret_cast<double*>(reinterpret_cast<char*>(a.log_sum) + 2); },
        "[cross_entropy] log_sum must be aligned"}});
  for (const int64_t target : {8, -1}) {
    c.targets[2] = target;
    expect_refused(rf_cross_entropy_forward(&args),
                   "[cross_entropy] targets[2] must be in 0..7 or ignore_index = -100, got " + std::to_string(target));
  }
  c.targets[2] = 0;
  expect_rules<rf_cross_entropy_grads>(
      c.grads(), [&](const rf_cross_entropy_grads* grads) { return rf_cross_entropy_backward(&args, grads); },
      {{[](auto& g) { g.loss_stride = -1; }, "[cross_entropy] grads->loss_stride must be >= 0, got -1"},
       {[](auto& g) { g.logits = nullptr; }, "[cross_entropy] grads->logits must not be NULL, got NULL"},
       {[](auto& g) { g.loss = nullptr; }, "[cross_entropy] grads->loss must not be NULL, got NULL"}});
}

}  // namespace
}  // namespace rf::tests
