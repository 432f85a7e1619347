// Softmax and cross-entropy: forward against the formulas, gradients of the float64 loops against differences, kernels
// of every instruction set against the float64 loops, and the promises and rules of the header.
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
  SoftmaxCase in_float64() const {
    SoftmaxCase copy = *this;
    for (Rows SoftmaxCase::*rows : {&SoftmaxCase::x, &SoftmaxCase::y, &SoftmaxCase::dy, &SoftmaxCase::dx}) {
      copy.*rows = (this->*rows).to(RF_F64);
    }
    return copy;
  }
  rf_softmax_args args() {
    rf_softmax_args a = {};
    a.struct_size = sizeof(a);
    a.dtype = x.data.dtype;
    a.rows = x.rows;
    a.columns = x.columns;
    a.x = x.pointer();
    a.y = y.pointer();
    a.x_stride = a.y_stride = x.stride;
    return a;
  }
  rf_softmax_grads grads() {
    rf_softmax_grads g = {};
    g.struct_size = sizeof(g);
    g.y = dy.pointer();
    g.x = dx.pointer();
    g.y_stride = g.x_stride = x.stride;
    return g;
  }
  void forward() {
    const rf_softmax_args a = args();
    ASSERT_EQ(rf_softmax_forward(&a), RF_OK) << rf_last_error();
  }
  void backward() {
    const rf_softmax_args a = args();
    const rf_softmax_grads g = grads();
    ASSERT_EQ(rf_softmax_backward(&a, &g), RF_OK) << rf_last_error();
  }
};

// The largest |x| of each row.
std::vector<double> largest_magnitudes(const Rows& x) {
  std::vector<double> largest(static_cast<size_t>(x.rows));
  for (int64_t r = 0; r < x.rows; ++r) {
    double& row = largest[static_cast<size_t>(r)];
    for (int64_t c = 0; c < x.columns; ++c) row = std::max(row, std::abs(x.at(r, c)));
  }
  return largest;
}

using Softmax = RowsTest;

TEST_P(Softmax, ForwardIsTheFormula) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16, RF_F64}) {
    for (const auto& [rows, columns, gap] : kShapes) {
      SoftmaxCase c(dtype, rows, columns, gap);
      c.forward();
      Rows want = c.y.to(RF_F64);
      const std::vector<double> largest = largest_magnitudes(c.x);
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < columns; ++i) sum += std::exp(c.x.at(r, i));
        for (int64_t i = 0; i < columns; ++i) want.set(r, i, std::exp(c.x.at(r, i)) / sum);
      }
      // The exponent x - largest is rounded: e^x has a relative error of |x - largest| eps.
      expect_rows(
          c.y, want,
          [&](int64_t r, int64_t i) {
            return want.at(r, i) * (1 + 2 * largest[static_cast<size_t>(r)]) + smallest_of(dtype);
          },
          "dtype " + std::to_string(dtype) + " columns " + std::to_string(columns));
    }
  }
}

TEST_P(Softmax, BackwardIsThatOfTheFloat64Loops) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16}) {
    for (const auto& [rows, columns, gap] : kShapes) {
      SoftmaxCase c(dtype, rows, columns, gap);
      c.forward();
      c.backward();
      SoftmaxCase want = c.in_float64();
      want.backward();
      std::vector<double> sums(static_cast<size_t>(rows));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < columns; ++i) sums[static_cast<size_t>(r)] += std::abs(c.y.at(r, i) * c.dy.at(r, i));
      }
      expect_rows(
          c.dx, want.dx,
          [&](int64_t r, int64_t i) {
            return c.y.at(r, i) * (std::abs(c.dy.at(r, i)) + sums[static_cast<size_t>(r)]) + smallest_of(dtype);
          },
          "dtype " + std::to_string(dtype) + " columns " + std::to_string(columns));
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
    c.forward();
    c.backward();
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
    expect_same_bits_with_threads([&] {
      c.forward();
      c.backward();
      std::vector<char> all = c.y.data.bytes;
      all.insert(all.end(), c.dx.data.bytes.begin(), c.dx.data.bytes.end());
      return all;
    });
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

INSTANTIATE_TEST_SUITE_P(InstructionSets, Softmax, testing::ValuesIn(row_targets()),
                         [](const auto& info) { return info.param; });

TEST(SoftmaxReference, GradientsAreDifferences) {
  SoftmaxCase c(RF_F64, 3, 5, 1);
  c.x.fill(7, 0, 1);
  c.forward();
  c.backward();
  expect_differences(c.x, c.dx, [&] {
    c.forward();
    double sum = 0;
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t i = 0; i < 5; ++i) sum += c.y.at(r, i) * c.dy.at(r, i);
    }
    return sum;
  });
}

TEST(SoftmaxErrors, RulesAreNamed) {
  SoftmaxCase c(RF_F32, 4, 8, 0);
  const auto refused = [&](const std::function<void(rf_softmax_args&)>& spoil, const std::string& message) {
    rf_softmax_args args = c.args();
    spoil(args);
    expect_refused(rf_softmax_forward(&args), message);
  };
  expect_refused(rf_softmax_forward(nullptr), "[softmax] args must not be NULL, got NULL");
  refused([](auto& a) { a.struct_size = 8; }, "[softmax] struct_size of args must be in");
  refused([](auto& a) { a.rows = -1; }, "[softmax] rows must be >= 0, got -1");
  refused([](auto& a) { a.x = nullptr; }, "[softmax] x must not be NULL, got NULL");
  refused([](auto& a) { a.y_stride = 7; }, "[softmax] y_stride must be at least columns = 8, got 7");
  const rf_softmax_args args = c.args();
  rf_softmax_grads grads = c.grads();
  expect_refused(rf_softmax_backward(&args, nullptr), "[softmax] grads must not be NULL, got NULL");
  grads.x = nullptr;
  expect_refused(rf_softmax_backward(&args, &grads), "[softmax] grads->x must not be NULL, got NULL");
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
  EntropyCase in_float64() const {
    EntropyCase copy = *this;
    for (Rows EntropyCase::*rows : {&EntropyCase::logits, &EntropyCase::dlogits, &EntropyCase::loss,
                                    &EntropyCase::log_sum, &EntropyCase::dloss}) {
      copy.*rows = (this->*rows).to(RF_F64);
    }
    return copy;
  }
  rf_cross_entropy_args args() {
    rf_cross_entropy_args a = {};
    a.struct_size = sizeof(a);
    a.dtype = logits.data.dtype;
    a.rows = logits.rows;
    a.columns = logits.columns;
    a.logits = logits.pointer();
    a.logits_stride = logits.stride;
    a.targets = targets.data();
    a.ignore_index = kIgnored;
    a.loss = loss.pointer();
    a.log_sum = static_cast<double*>(log_sum.pointer());
    return a;
  }
  rf_cross_entropy_grads grads() {
    rf_cross_entropy_grads g = {};
    g.struct_size = sizeof(g);
    g.loss = dloss.pointer();
    g.loss_stride = 1;
    g.logits = dlogits.pointer();
    g.logits_stride = logits.stride;
    return g;
  }
  void forward() {
    const rf_cross_entropy_args a = args();
    ASSERT_EQ(rf_cross_entropy_forward(&a), RF_OK) << rf_last_error();
  }
  void backward() {
    const rf_cross_entropy_args a = args();
    const rf_cross_entropy_grads g = grads();
    ASSERT_EQ(rf_cross_entropy_backward(&a, &g), RF_OK) << rf_last_error();
  }
  bool is_ignored(int64_t row) const { return targets[static_cast<size_t>(row)] == kIgnored; }
};

using CrossEntropy = RowsTest;

TEST_P(CrossEntropy, ForwardIsTheFormula) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16, RF_F64}) {
    for (const auto& [rows, columns, gap] : kShapes) {
      EntropyCase c(dtype, rows, columns, gap);
      c.forward();
      Rows loss = c.loss.to(RF_F64), log_sum = loss;
      for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t i = 0; i < columns; ++i) sum += std::exp(c.logits.at(r, i));
        log_sum.set(r, 0, std::log(sum));
        loss.set(r, 0, c.is_ignored(r) ? 0 : std::log(sum) - c.logits.at(r, c.targets[static_cast<size_t>(r)]));
      }
      // Relative errors of the exponentials are absolute ones of the logarithm of their sum.
      const std::vector<double> largest = largest_magnitudes(c.logits);
      const auto magnitude = [&](int64_t r, int64_t) { return 1 + 2 * largest[static_cast<size_t>(r)]; };
      const std::string what = "dtype " + std::to_string(dtype) + " columns " + std::to_string(columns);
      expect_rows(c.log_sum.to(c.loss.data.dtype), log_sum, magnitude, what + " log_sum");
      expect_rows(
          c.loss, loss, [&](int64_t r, int64_t) { return c.is_ignored(r) ? 0 : magnitude(r, 0); }, what + " loss");
    }
  }
}

TEST_P(CrossEntropy, BackwardIsThatOfTheFloat64Loops) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F16}) {
    for (const auto& [rows, columns, gap] : kShapes) {
      EntropyCase c(dtype, rows, columns, gap);
      c.forward();
      c.backward();
      EntropyCase want = c.in_float64();
      want.forward();
      want.backward();
      const std::vector<double> largest = largest_magnitudes(c.logits);
      expect_rows(
          c.dlogits, want.dlogits,
          [&](int64_t r, int64_t i) {
            if (c.is_ignored(r)) return 0.0;
            const bool target = i == c.targets[static_cast<size_t>(r)];
            const double p = std::exp(c.logits.at(r, i) - want.log_sum.at(r, 0));
            const double spread = 1 + 3 * largest[static_cast<size_t>(r)];
            return std::abs(c.dloss.at(r, 0)) * (p * spread + (target ? 1 : 0)) + smallest_of(dtype);
          },
          "dtype " + std::to_string(dtype) + " columns " + std::to_string(columns));
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
    c.forward();
    c.backward();
    EntropyCase want = c.in_float64();
    want.forward();
    want.backward();
    constexpr double kSpread = 40;  // of 1000 numbers with a deviation of 4, with room
    const auto magnitude = [&](int64_t r, int64_t) { return c.is_ignored(r) ? 0 : kSpread; };
    expect_rows(c.loss, want.loss, magnitude, "loss, added " + std::to_string(added));
    expect_rows(c.dlogits, want.dlogits, magnitude, "dlogits, added " + std::to_string(added));
  }
}

TEST_P(CrossEntropy, GradientsMayGoOverTheLogitsAndThreadsGiveTheSameBits) {
  for (const rf_dtype dtype : {RF_F32, RF_BF16, RF_F64}) {
    EntropyCase c(dtype, 30, 5003, 0);
    expect_same_bits_with_threads([&] {
      c.forward();
      c.backward();
      std::vector<char> all = c.loss.data.bytes;
      all.insert(all.end(), c.dlogits.data.bytes.begin(), c.dlogits.data.bytes.end());
      return all;
    });
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
  c.forward();
  c.backward();
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
  c.forward();
  c.backward();
  EXPECT_NEAR(c.loss.at(0, 0), std::log(4000.0), kRowEps * kEpsF32 * 1000);
  EXPECT_EQ(c.dlogits.at(0, 0), 0);
  EXPECT_TRUE(std::isnan(c.loss.at(1, 0)));
  EXPECT_EQ(c.loss.at(2, 0), 0);
  EXPECT_EQ(c.dlogits.at(2, 17), 0);
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, CrossEntropy, testing::ValuesIn(row_targets()),
                         [](const auto& info) { return info.param; });

TEST(CrossEntropyReference, GradientsAreDifferences) {
  EntropyCase c(RF_F64, 4, 5, 1);
  c.logits.fill(7, 0, 1);
  c.forward();
  c.backward();
  expect_differences(c.logits, c.dlogits, [&] {
    c.forward();
    double sum = 0;
    for (int64_t r = 0; r < 4; ++r) sum += c.loss.at(r, 0) * c.dloss.at(r, 0);
    return sum;
  });
}

TEST(CrossEntropyErrors, RulesAreNamed) {
  EntropyCase c(RF_F32, 4, 8, 0);
  const auto refused = [&](const std::function<void(rf_cross_entropy_args&)>& spoil, const std::string& message) {
    rf_cross_entropy_args args = c.args();
    spoil(args);
    expect_refused(rf_cross_entropy_forward(&args), message);
  };
  expect_refused(rf_cross_entropy_forward(nullptr), "[cross_entropy] args must not be NULL, got NULL");
  refused([](auto& a) { a.struct_size = 8; }, "[cross_entropy] struct_size of args must be in");
  refused([](auto& a) { a.columns = 0; }, "[cross_entropy] columns must be >= 1, got 0");
  refused([](auto& a) { a.logits = nullptr; }, "[cross_entropy] logits must not be NULL, got NULL");
  refused([](auto& a) { a.logits_stride = 7; }, "[cross_entropy] logits_stride must be at least columns = 8, got 7");
  refused([](auto& a) { a.targets = nullptr; }, "[cross_entropy] targets must not be NULL, got NULL");
  refused([](auto& a) { a.loss = nullptr; }, "[cross_entropy] loss must not be NULL, got NULL");
  refused([](auto& a) { a.log_sum = reinterpret_cast<double*>(reinterpret_cast<char*>(a.log_sum) + 2); },
          "[cross_entropy] log_sum must be aligned");
  c.targets[2] = 8;
  refused([](auto&) {}, "[cross_entropy] targets[2] must be in 0..7 or ignore_index = -100, got 8");
  c.targets[2] = -1;
  refused([](auto&) {}, "[cross_entropy] targets[2] must be in 0..7 or ignore_index = -100, got -1");
  c.targets[2] = 0;
  const rf_cross_entropy_args args = c.args();
  rf_cross_entropy_grads grads = c.grads();
  grads.loss_stride = -1;
  expect_refused(rf_cross_entropy_backward(&args, &grads), "[cross_entropy] grads->loss_stride must be >= 0, got -1");
  grads = c.grads();
  grads.logits = nullptr;
  expect_refused(rf_cross_entropy_backward(&args, &grads), "[cross_entropy] grads->logits must not be NULL, got NULL");
  grads = c.grads();
  grads.loss = nullptr;
  expect_refused(rf_cross_entropy_backward(&args, &grads), "[cross_entropy] grads->loss must not be NULL, got NULL");
  expect_refused(rf_cross_entropy_backward(&args, nullptr), "[cross_entropy] grads must not be NULL, got NULL");
}

}  // namespace
}  // namespace rf::tests
