// Rules on made-up values, each with every outcome.
#include "verdict.h"

#include <gtest/gtest.h>

namespace rf::reproduce {
namespace {

constexpr const char* kLoss = "loss, nats";

Evidence evidence(const std::map<std::string, std::vector<double>>& by_arm) {
  Evidence made;
  for (const auto& [arm, values] : by_arm) {
    for (size_t i = 0; i < values.size(); ++i) made.measures.push_back({kLoss, arm, i + 1, values[i]});
  }
  return made;
}

Rule rule(std::vector<Contrast> parts) {
  return {.experiment = "made-up", .claim = "made-up", .parts = std::move(parts)};
}

Contrast lower(const char* arm, const char* against, double margin) {
  return {.measure = kLoss, .arm = arm, .against = against, .below = -margin};
}

TEST(Verdict, ADifferenceBeyondTheMarginIsSupportedAndItsOppositeRefuted) {
  const Evidence found = evidence({{"rope", {5.00, 5.11, 4.90}}, {"learned", {5.51, 5.60, 5.41}}});
  EXPECT_EQ(judge(rule({lower("rope", "learned", 0.02)}), found).verdict, "supported");
  EXPECT_EQ(judge(rule({lower("learned", "rope", 0.02)}), found).verdict, "refuted");
  EXPECT_EQ(judge(rule({lower("rope", "learned", 0.5)}), found).verdict, "inconclusive");  // about that much
}

// The seeds differ by more than the arms: as unpaired ranges they overlap.
TEST(Verdict, SeedsArePaired) {
  const Evidence found = evidence({{"rope", {4.0, 5.0, 6.0}}, {"learned", {4.11, 5.10, 6.09}}});
  EXPECT_EQ(judge(rule({lower("rope", "learned", 0.02)}), found).verdict, "supported");
  Evidence shuffled = found;
  std::swap(shuffled.measures[0].value, shuffled.measures[2].value);
  EXPECT_EQ(judge(rule({lower("rope", "learned", 0.02)}), shuffled).verdict, "inconclusive");
}

TEST(Verdict, EquivalenceNeedsBothEnds) {
  const Contrast equal{.measure = kLoss, .arm = "a", .against = "b", .above = -0.02, .below = 0.02};
  const auto with = [&](double x, double y, double z) {
    return judge(rule({equal}), evidence({{"a", {1 + x, 1 + y, 1 + z}}, {"b", {1, 1, 1}}})).verdict;
  };
  EXPECT_EQ(with(0.001, -0.001, 0.0005), "supported");
  EXPECT_EQ(with(0.1, -0.1, 0), "inconclusive");  // the mean is equal, the noise is not
  EXPECT_EQ(with(0.1, 0.101, 0.099), "refuted");
  EXPECT_EQ(with(-0.1, -0.101, -0.099), "refuted");
}

// p is 0.018 for either part: enough for one, not for two.
TEST(Verdict, SeveralPartsAreCorrected) {
  const Evidence found = evidence({{"a", {-0.2, -0.3, -0.4}}, {"b", {0, 0, 0}}, {"c", {0, 0, 0}}});
  EXPECT_EQ(judge(rule({lower("a", "b", 0)}), found).verdict, "supported");
  const Verdict both = judge(rule({lower("a", "b", 0), lower("a", "c", 0)}), found);
  EXPECT_EQ(both.verdict, "inconclusive");
  EXPECT_DOUBLE_EQ(both.checks[0].at("p_holm").get<double>(), 2 * both.checks[0].at("p").get<double>());
}

TEST(Verdict, AFailedPreconditionMakesItInconclusive) {
  Rule with = rule({lower("rope", "learned", 0.02)});
  with.preconditions = {lower("learned", "none", 0.05)};
  std::map<std::string, std::vector<double>> arms = {
      {"rope", {5.0, 5.01, 4.99}}, {"learned", {5.5, 5.51, 5.52}}, {"none", {6, 6.01, 6.02}}};
  EXPECT_EQ(judge(with, evidence(arms)).verdict, "supported");
  arms["none"] = {5.5, 5.52, 5.51};
  const Verdict failed = judge(with, evidence(arms));
  EXPECT_EQ(failed.verdict, "inconclusive");
  EXPECT_NE(failed.figures.find("a precondition is not shown: learned less none"), std::string::npos) << failed.figures;
  arms.erase("none");
  EXPECT_NE(judge(with, evidence(arms)).figures.find("no such values by seed"), std::string::npos);
}

TEST(Verdict, RatesMustBeTuned) {
  Rule with = rule({lower("rope", "learned", 0.02)});
  with.tuned = {"rope"};
  Evidence found = evidence({{"rope", {5.0, 5.01, 4.99}}, {"learned", {5.5, 5.51, 5.52}}});
  const auto figures = [&] {
    const Verdict judged = judge(with, found);
    EXPECT_EQ(judged.verdict, "inconclusive");
    return judged.figures;
  };
  EXPECT_NE(figures().find("was not tuned"), std::string::npos);
  found.rates = {{"rope", {1e-4, 1e-3}, {2, 1}}};
  EXPECT_NE(figures().find("2 rates were tried for rope, fewer than 3"), std::string::npos);
  found.rates = {{"rope", {1e-4, 3e-4, 1e-3}, {3, 2, 1}}};
  EXPECT_NE(figures().find("the best rate of rope, 0.001, is at the edge"), std::string::npos);
  found.rates = {{"rope", {1e-4, 3e-4, 1e-3}, {3, 1, 2}}};
  EXPECT_EQ(judge(with, found).verdict, "supported");
  found.rates.front().whole_rates = {3e-4};  // whole runs choose, and a lower rate must have been one of them
  found.rates.front().whole_losses = {0.9};
  EXPECT_NE(figures().find("the best rate of rope, 0.0003, is at the edge"), std::string::npos);
  found.rates.front().whole_rates = {1e-4, 3e-4};
  found.rates.front().whole_losses = {1, 0.9};
  EXPECT_EQ(judge(with, found).verdict, "supported");
  const nlohmann::json written = {{"rates", found.rates}};
  EXPECT_EQ(evidence_of(written).rates.front().whole_losses, found.rates.front().whole_losses);
  found.rates.front().whole_losses = {0.8, 0.9};
  EXPECT_NE(figures().find("the best rate of rope, 0.0001, is at the edge"), std::string::npos);
}

// Lower, by less than the margin: neither what is asked for nor its opposite.
TEST(Verdict, APartWithAnOppositeFailsBeyondIt) {
  Contrast by_margin = lower("rope", "learned", 0.02);
  const auto with = [&](double difference) {
    const std::vector<double> rope = {5 + difference, 5.001 + difference, 4.999 + difference};
    return judge(rule({by_margin}), evidence({{"rope", rope}, {"learned", {5, 5, 5}}})).verdict;
  };
  EXPECT_EQ(with(-0.01), "refuted");
  by_margin.opposite = 0;
  EXPECT_EQ(with(-0.04), "supported");
  EXPECT_EQ(with(-0.01), "inconclusive");
  EXPECT_EQ(with(0.01), "refuted");
}

TEST(Verdict, EachSeedMustHaveAValue) {
  Rule with = rule({lower("rope", "learned", 0.02)});
  Evidence found = evidence({{"rope", {5.0, 5.01, 4.99}}, {"learned", {5.5, 5.51, 5.52}}});
  found.seeds = {1, 2, 3};
  EXPECT_EQ(judge(with, found).verdict, "supported");
  found.seeds.push_back(4);
  const Verdict judged = judge(with, found);
  EXPECT_EQ(judged.verdict, "inconclusive");
  EXPECT_EQ(judged.checks[0].at("outcome"), "a value is missing");
  EXPECT_NE(judged.figures.find("rope has no loss, nats with seed 4"), std::string::npos) << judged.figures;
  with.preconditions = with.parts;
  EXPECT_EQ(judge(with, found).verdict, "inconclusive");
}

TEST(Verdict, OneSeedDecidesNothing) {
  const Evidence found = evidence({{"rope", {1}}, {"learned", {9}}});
  const Verdict judged = judge(rule({lower("rope", "learned", 0.02)}), found);
  EXPECT_EQ(judged.verdict, "inconclusive");
  EXPECT_FALSE(judged.checks[0].contains("low"));
}

TEST(Verdict, AWithdrawnRuleIsInconclusiveForEarlierRevisions) {
  Rule with = rule({lower("rope", "learned", 0.02)});
  with.withdrawn = "it was noise";
  Evidence found = evidence({{"rope", {5.0, 5.01, 4.99}}, {"learned", {5.5, 5.51, 5.52}}});
  EXPECT_EQ(judge(with, found).verdict, "inconclusive");
  EXPECT_EQ(judge(with, found).figures, "withdrawn: it was noise");
  found.revision = 2;
  EXPECT_EQ(judge(with, found).verdict, "supported");
}

// Texts and figures have fractions in per cent, and their differences in points; values stay as they are.
TEST(Verdict, FractionsAreInPerCent) {
  const Contrast alone{.measure = "copy, accuracy at 64 tokens", .arm = "a", .above = 0.95};
  const Contrast more{
      .measure = "copy, accuracy at 64 tokens", .arm = "a", .against = "b", .above = 0.01, .opposite = 0};
  const Contrast same{.measure = "of all, fraction", .arm = "a", .against = "b", .above = -0.02, .below = 0.02};
  EXPECT_EQ(text(alone), "a, copy, accuracy at 64 tokens: above 95 %");
  EXPECT_EQ(text(more), "a less b, copy, accuracy at 64 tokens: above 1 point (the opposite: below 0 points)");
  EXPECT_EQ(text(same), "a less b, of all: between -2 and 2 points");
  EXPECT_EQ(unit_of({.measure = "loss, nats", .arm = "a"}), "");
  EXPECT_EQ(unit_of({.measure = "copy, accuracy at 128 tokens less that at 64", .arm = "a"}), "points");
  Evidence found{.measures = {}, .rates = {}};
  for (const uint64_t seed : {1, 2, 3})
    found.measures.push_back({alone.measure, "a", seed, 0.9621 + 0.0001 * double(seed)});
  const Verdict judged = judge({.experiment = "e", .claim = "C", .parts = {alone}}, found);
  EXPECT_EQ(judged.verdict, "supported");
  EXPECT_EQ(judged.figures, "a, copy, accuracy at 64 tokens: above 95 %; 96.23 [96.21, 96.25] %");
  EXPECT_EQ(judged.checks[0].at("unit"), "%");
  EXPECT_NEAR(judged.checks[0].at("mean").get<double>(), 0.9623, 1e-12);
  found.measures.resize(1);
  EXPECT_EQ(judge({.experiment = "e", .claim = "C", .parts = {alone}}, found).figures,
            "a, copy, accuracy at 64 tokens: above 95 %; 96.22 %, without an interval");
}

}  // namespace
}  // namespace rf::reproduce
