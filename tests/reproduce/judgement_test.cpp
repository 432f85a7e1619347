// The confirming rules on made-up numbers, each with both outcomes.
#include "judgement.h"

#include <gtest/gtest.h>

namespace rf::reproduce {
namespace {

Curve line(double begin, double end) {
  Curve curve;
  for (int i = 1; i <= 30; ++i) {
    curve.steps.push_back(10.0 * i);
    curve.losses.push_back(begin + (end - begin) * i / 30.0);
  }
  return curve;
}

TEST(Judgement, LateMeanLeavesTheFirstThirdOut) {
  Curve curve = line(2, 2);
  for (size_t i = 0; i < 10; ++i) curve.losses[i] = 100;  // steps 10..100 of 300
  EXPECT_DOUBLE_EQ(late_mean(curve), 2);
  curve.losses[10] = 22;
  EXPECT_DOUBLE_EQ(late_mean(curve), 3);
}

TEST(Judgement, StepsToTheEndOfAnotherCurve) {
  const Curve slow = line(8, 5);  // the last five: 5.2
  EXPECT_DOUBLE_EQ(steps_to_end_of(line(5.1, 5.1), slow), 50);
  EXPECT_DOUBLE_EQ(steps_to_end_of(slow, slow), 300);
  EXPECT_DOUBLE_EQ(steps_to_end_of(line(9, 6), slow), 301);  // never
}

TEST(Judgement, FasterConvergence) {
  Curves curves = {{"rope", {line(8, 4), line(8, 4.1)}},
                   {"learned", {line(8, 5), line(8, 5)}},
                   {"sinusoidal", {line(8, 6), line(8, 6)}}};
  const Judgement good = faster_convergence(curves, "rope", {"learned", "sinusoidal"});
  EXPECT_TRUE(good.holds);
  EXPECT_NE(good.figures.find("2 of 2 seeds"), std::string::npos) << good.figures;
  curves["rope"][1] = line(8, 5.5);  // one seed, one baseline
  EXPECT_FALSE(faster_convergence(curves, "rope", {"learned", "sinusoidal"}).holds);
  EXPECT_TRUE(faster_convergence(curves, "rope", {"sinusoidal"}).holds);
  curves["rope"] = curves["learned"];  // equal is not faster
  EXPECT_FALSE(faster_convergence(curves, "rope", {"learned"}).holds);
}

TEST(Judgement, ALowerMeanThatArrivesLateIsNotFaster) {
  Curve late = line(3, 3);
  for (size_t i = 25; i < 30; ++i) late.losses[i] = 6;
  // The same late mean but for a better start, and above the baseline's end from there on.
  EXPECT_FALSE(faster_convergence({{"rope", {line(4.5, 4.5)}}, {"learned", {line(9, 4)}}}, "rope", {"learned"}).holds);
  EXPECT_TRUE(faster_convergence({{"rope", {late}}, {"learned", {line(9, 4)}}}, "rope", {"learned"}).holds);
}

TEST(Judgement, AsGoodAs) {
  EXPECT_TRUE(as_good_as({0.80, 0.83}, {0.79, 0.81}, 0.02).holds);  // 0.815 beside 0.80
  EXPECT_TRUE(as_good_as({0.79, 0.81}, {0.80, 0.83}, 0.02).holds);
  EXPECT_FALSE(as_good_as({0.80, 0.85}, {0.79, 0.81}, 0.02).holds);  // better by more is not equal
  const Judgement worse = as_good_as({0.7, 0.7}, {0.8, 0.8}, 0.02);
  EXPECT_FALSE(worse.holds);
  EXPECT_NE(worse.figures.find("-0.100"), std::string::npos) << worse.figures;
}

TEST(Judgement, TranslatesAsWell) {
  const TranslationScores good{.own = {36, 37}, .other = {36.2, 37}, .low = -0.45, .high = 0.3};
  EXPECT_TRUE(translates_as_well(good, 33, 0.5).holds);
  TranslationScores wide = good;
  wide.low = -0.5;
  EXPECT_FALSE(translates_as_well(wide, 33, 0.5).holds);
  TranslationScores weak = good;
  weak.other = {32, 33};  // a baseline that was trained badly proves nothing
  EXPECT_FALSE(translates_as_well(weak, 33, 0.5).holds);
  TranslationScores weak_own = good;
  weak_own.own = {32, 33};
  EXPECT_FALSE(translates_as_well(weak_own, 33, 0.5).holds);
  const std::string figures = translates_as_well(good, 33, 0.5).figures;
  EXPECT_NE(figures.find("-0.10, 95% interval -0.45 to +0.30"), std::string::npos) << figures;
}

TEST(Judgement, LowerLateLoss) {
  Curves curves = {
      {"eq19", {line(5, 3), line(5, 3.5)}}, {"lpp", {line(5, 4), line(5, 4)}}, {"learned", {line(6, 5), line(6, 5)}}};
  EXPECT_TRUE(lower_late_loss(curves, {"eq19", "lpp"}, "learned").holds);
  curves["lpp"][1] = line(9, 6);
  const Judgement bad = lower_late_loss(curves, {"eq19", "lpp"}, "learned");
  EXPECT_FALSE(bad.holds);
  EXPECT_NE(bad.figures.find("1 of 2 seeds"), std::string::npos) << bad.figures;
  EXPECT_TRUE(lower_late_loss(curves, {"eq19"}, "learned").holds);
}

TEST(Judgement, ReadsFurther) {
  EXPECT_TRUE(reads_further({1.5, 1.6}, {1.51, 1.4}, 0.02).holds);
  EXPECT_FALSE(reads_further({1.5, 1.6}, {1.51, 1.63}, 0.02).holds);
}

TEST(Judgement, BetterWhenLonger) {
  EXPECT_TRUE(better_when_longer({0.60, 0.62}, {0.62, 0.64}, 0.01).holds);
  EXPECT_FALSE(better_when_longer({0.60, 0.62}, {0.70, 0.625}, 0.01).holds);  // one seed
}

TEST(Judgement, EqualWhenShort) {
  const ByLength good{.other_short = {0.60, 0.64}, .own_short = {0.62, 0.60}, .own_long = {0.63, 0.64}};
  EXPECT_TRUE(equal_when_short(good, 0.02, 0.01).holds);
  ByLength other = good;
  other.own_short = {0.50, 0.52};  // worse on short rows
  EXPECT_FALSE(equal_when_short(other, 0.02, 0.01).holds);
  other = good;
  other.own_short = {0.66, 0.66};  // better on short rows
  EXPECT_FALSE(equal_when_short(other, 0.02, -1).holds);
  other = good;
  other.own_long = good.own_short;  // no gain
  EXPECT_FALSE(equal_when_short(other, 0.02, 0.01).holds);
}

TEST(Judgement, NotWorse) {
  const TaskScores first{.task = "one", .other = {0.80, 0.82}, .own = {0.81, 0.80}};
  TaskScores second{.task = "two", .other = {0.5, 0.5}, .own = {0.6, 0.7}};
  const Judgement good = not_worse({first, second}, 0.01);
  EXPECT_TRUE(good.holds);
  EXPECT_NE(good.figures.find("one: -0.005; two: +0.150; better on 1 of 2 tasks"), std::string::npos) << good.figures;
  EXPECT_FALSE(not_worse({first, second}, 0.001).holds);
}

TEST(Judgement, AboveBaselines) {
  TaskScores task{.task = "one", .other = {}, .own = {0.75, 1.0}, .baseline = 0.5, .bag_of_words = 0.84};
  EXPECT_TRUE(above_baselines({task}).holds);
  TaskScores other = task;
  other.bag_of_words = 0.875;  // the same is not above
  EXPECT_FALSE(above_baselines({task, other}).holds);
  other = task;
  other.baseline = 0.88;
  const Judgement bad = above_baselines({other});
  EXPECT_FALSE(bad.holds);
  EXPECT_NE(bad.figures.find("not above 0.880 of the baseline, above 0.840"), std::string::npos) << bad.figures;
}

TEST(Judgement, RisesWithLength) {
  EXPECT_TRUE(rises_with_length({{0.1, 0.2}, {0.2, 0.3}, {0.3, 0.4}}, {32, 64, 128}).holds);
  EXPECT_FALSE(rises_with_length({{0.1, 0.2}, {0.2, 0.3}, {0.3, 0.3}}, {32, 64, 128}).holds);
}

TEST(Judgement, Clipping) {
  const std::vector<std::string> arms = {"4", "16", "64"};
  EXPECT_TRUE(clipping_loses_nothing({{"4", {6, 6}}, {"16", {5.0, 5.1}}, {"64", {5.0, 4.98}}}, arms).holds);
  EXPECT_FALSE(clipping_loses_nothing({{"4", {6, 6}}, {"16", {5.0, 5.1}}, {"64", {4.5, 4.6}}}, arms).holds);
}

TEST(Judgement, MiddleTerms) {
  const Losses good = {{"both", {5.0, 5.1}}, {"c2p", {5.3, 5.3}}, {"p2c", {5.0, 5.05}}, {"learned", {6, 6}}};
  EXPECT_TRUE(middle_terms_suffice(good, "both", {"c2p", "p2c"}, "learned").holds);
  for (const char* better : {"c2p", "learned"}) {
    Losses bad = good;
    bad[better] = {4.5, 4.6};
    EXPECT_FALSE(middle_terms_suffice(bad, "both", {"c2p", "p2c"}, "learned").holds) << better;
  }
}

TEST(Judgement, LastIsBestWithEverySeed) {
  const std::vector<std::string> methods = {"m1", "m2", "m4"};
  EXPECT_TRUE(last_is_best({{"m1", {5, 6}}, {"m2", {5, 6}}, {"m4", {4, 5.9}}}, methods).holds);
  const Judgement bad = last_is_best({{"m1", {5, 6}}, {"m2", {5, 5.8}}, {"m4", {4, 5.9}}}, methods);
  EXPECT_FALSE(bad.holds);
  EXPECT_NE(bad.figures.find("1 of 2 seeds"), std::string::npos) << bad.figures;
}

TEST(Judgement, RopeAmongTheOthers) {
  const Losses good = {{"none", {7, 7.1}}, {"rope", {5.0, 5.1}}, {"t5", {5.5, 5.6}}, {"shaw", {4.95, 5.05}}};
  const std::map<std::string, double> times = {{"rope", 100}, {"shaw", 120}, {"t5", 90}};
  const Field field{.relative = {"t5", "shaw"}, .slower = {"shaw"}};
  EXPECT_TRUE(rope_among(good, times, field).holds);
  EXPECT_FALSE(rope_among(good, times, {.relative = {"t5", "shaw"}, .slower = {"t5"}}).holds);
  Losses bad = good;
  bad["shaw"] = {4.0, 4.1};  // better beyond noise
  EXPECT_FALSE(rope_among(bad, times, field).holds);
  bad = good;
  bad["t5"] = {7, 7.1};  // not better than none
  EXPECT_FALSE(rope_among(bad, times, field).holds);
}

TEST(Judgement, BoundsHoldWithEverySeed) {
  EXPECT_TRUE(frequencies_stay({0.01, 0.049}, 0.05).holds);
  EXPECT_FALSE(frequencies_stay({0.01, 0.05}, 0.05).holds);
  EXPECT_TRUE(little_correlation({0.1, 0.2}, 0.2).holds);
  EXPECT_FALSE(little_correlation({0.1, 0.21}, 0.2).holds);
  EXPECT_TRUE(nearer_is_higher({1, 2}, {0.5, 1.5}).holds);
  EXPECT_FALSE(nearer_is_higher({1, 2}, {0.5, 2}).holds);
}

}  // namespace
}  // namespace rf::reproduce
