// How a case is run: what is wrong is not timed, and sides and sets take turns. That every kernel's case is right is
// tested through the command (tests/cli/test_bench.py).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <stdexcept>
#include <thread>

#include "cases.h"

namespace rf::bench {

namespace {

Tensors ones(double value = 1) {
  return {at::full({3}, value, at::kDouble)};
}

Tensors floats(double value) {
  return {at::full({3}, value, at::kFloat)};
}

Case make_case(std::vector<Side> sides) {
  return {"fake/case", Unit::kOperations, 1e3, [sides] { return sides; }};
}

Options quick(Peers peers = Peers::kYes) {
  Options options;
  options.peers = peers;
  options.rounds = 3;
  options.window_ms = 0;  // one call
  return options;
}

std::string refusal(const std::vector<Side>& sides) {
  try {
    run_case(make_case(sides), quick());
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

const auto right = [] { return floats(1); };
const auto truth = [] { return ones(); };

TEST(RunCase, HoldsEverySideToFloat64) {
  const double far = 1 + 2 * kMaxEps * kEpsF32, near = 1 + kMaxEps * kEpsF32 / 2;
  const auto wrong = [=] { return floats(far); };
  EXPECT_EQ(refusal({{"ours", right, truth}, {"torch", [=] { return floats(near); }, {}}}), "");
  EXPECT_NE(refusal({{"ours", wrong, truth}}).find("ours of fake/case must be within 64 eps"), std::string::npos);
  EXPECT_NE(refusal({{"ours", right, truth}, {"torch", wrong, {}}}).find("torch of fake/case"), std::string::npos);
  EXPECT_NE(refusal({{"ours", right, truth}, {"torch", right, [] { return ones(2); }}}).find("torch"),
            std::string::npos);
}

// A side of bfloat16 beside the truth and the results of the plain formula: elements 1, 2, .., 8, heads of four.
std::string refusal_of(const at::Tensor& result, const at::Tensor& want, double plain_error) {
  const Tensors plain = {(want + plain_error).to(at::kBFloat16)};
  Side side = {"ours", [=] { return Tensors{result.to(at::kBFloat16)}; }, [=] { return Tensors{want}; }};
  side.plain = [=] { return plain; };
  return refusal({side});
}

TEST(RunCase, HoldsBfloat16ToThePlainFormula) {
  const at::Tensor want = at::arange(1, 9, at::kDouble), zeros = at::zeros_like(want);
  constexpr double kPlain = 0.125;
  EXPECT_EQ(refusal_of(want, want, kPlain), "");
  EXPECT_EQ(refusal_of(want + kPlainErrors * kPlain, want, kPlain), "");
  EXPECT_NE(refusal_of(want + (kPlainErrors + 1) * kPlain, want, kPlain), "");
  for (const double plain : {0.0, kPlain, 1.0}) {
    EXPECT_NE(refusal_of(zeros, want, plain).find("eps of float64, got"), std::string::npos);
    EXPECT_NE(refusal_of(want.view({2, 4}).flip(0).flatten(), want, plain), "");
    EXPECT_NE(refusal_of(want + at::full_like(want, 4), want, plain), "");  // a term of the sum is missing
  }
}

TEST(RunCase, RefusesNanAndResultsOfAnotherShape) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(refusal({{"ours", [=] { return floats(nan); }, truth}}), "");
  EXPECT_NE(refusal({{"ours", [] { return Tensors(); }, truth}}), "");
  EXPECT_NE(refusal({{"ours", [] { return Tensors{at::full({2}, 1.0, at::kFloat)}; }, truth}}), "");
}

TEST(RunCase, SidesAndSetsTakeTurns) {
  std::string calls;
  int made = 0;
  Case c = make_case({});
  c.sides = [&] {
    const char set = static_cast<char>('0' + made++);
    const auto side = [&calls, set](char name) {
      return [&calls, set, name] {
        calls += {name, set};
        return floats(1);
      };
    };
    return std::vector<Side>{{"ours", side('a'), truth}, {"torch", side('b'), {}, When::kWithPeers}};
  };
  Options options = quick();
  options.sets = 2;
  options.rounds = 2;
  EXPECT_EQ(run_case(c, options).size(), 2);
  // Verified on the first set; every set touched; three calls each say how long one takes; two rounds of a call to warm
  // up and one timed.
  const std::string expected = std::string("a0b0") + "a0a1b0b1" + "a0a1a0b1b0b1" + "a0a1b0b1" + "a0a1b0b1";
  EXPECT_EQ(calls, expected);
}

TEST(RunCase, KeepsWhatASetReturnedUntilItsNextTurn) {
  c10::weak_intrusive_ptr<at::TensorImpl> last(floats(1)[0].getIntrusivePtr());
  std::string kept;  // at each call, what the call before it had returned: by the other set
  const auto run = [&] {
    kept += last.expired() ? 'n' : 'y';
    Tensors results = floats(1);
    last = c10::weak_intrusive_ptr<at::TensorImpl>(results[0].getIntrusivePtr());
    return results;
  };
  Options options = quick();
  options.sets = 2;
  options.rounds = 1;
  run_case(make_case({{"ours", run, truth}}), options);
  EXPECT_EQ(
      kept,
      "nn"
      "yyyyyy");  // verified and forgotten, then calls in turn: 2 + 3 + 1 + 1, of which the first has none before it
}

TEST(RunCase, LeavesPeersOutUnlessAskedFor) {
  const std::vector<Side> sides = {{"ours", right, truth}, {"torch", right, {}, When::kWithPeers}, {"copy", right, {}}};
  const std::vector<Result> results = run_case(make_case(sides), quick(Peers::kNo));
  ASSERT_EQ(results.size(), 2);
  EXPECT_EQ(results[0].side, "ours");
  EXPECT_EQ(results[1].side, "copy");
}

TEST(RunCase, RatioSaysHowManyTimesAsFastOursIs) {
  const auto slow = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return floats(1);
  };
  const std::vector<Result> results = run_case(make_case({{"ours", right, truth}, {"slow", slow, {}}}), quick());
  EXPECT_EQ(results[0].ours_times_as_fast, 1);
  EXPECT_GT(results[1].ours_times_as_fast, 1);
  EXPECT_GT(results[1].median_us, 4999);
  EXPECT_EQ(results[1].gigabytes_per_s, 0);
  EXPECT_NEAR(results[1].gflop_per_s * results[1].median_us * 1e3, 1e3, 1e-6);
}

}  // namespace

}  // namespace rf::bench
