// Searches for a learning rate over made-up losses.
#include "rate_search.h"

#include <gtest/gtest.h>

#include <set>

#include "silent_context.h"

namespace rf::reproduce {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

using Losses = std::map<double, double>;  // by rate; other rates must not be tried

struct Search {
  SilentContext silent{"", ""};
  uint64_t whole_seed = 1;
  std::vector<double> whole_tried = {};  // in order

  double go(const Losses& short_losses, const Losses& whole_losses, int64_t lower = 3) {
    const RateSearch search{.rates = {3e-4, 1e-3, 3e-3}, .steps = 10, .beyond = 2, .lower = lower};
    const auto tried = [](const Losses& losses, double rate, uint64_t seed) -> TriedRun {
      for (const auto& [known, loss] : losses) {
        if (std::abs(rate / known - 1) < 1e-9) return {.directory = "nowhere", .seed = seed, .loss = loss};
      }
      ADD_FAILURE() << rate;
      return {};
    };
    return search_rate(
               silent.context, search, "rope", [&](double rate) { return tried(short_losses, rate, 1000); },
               [&](double rate) {
                 whole_tried.push_back(rate);
                 return tried(whole_losses, rate, whole_seed);
               })
        .rate;
  }
};

TEST(RateSearch, WithoutWholeRunsTheShortOnesDecide) {
  Search search;
  EXPECT_EQ(search.go({{3e-4, 3}, {1e-3, 1}, {3e-3, 2}}, {}, /*lower=*/0), 1e-3);
  EXPECT_TRUE(search.whole_tried.empty());
  EXPECT_FALSE(nlohmann::json(search.silent.log.rates.front()).contains("whole"));
}

TEST(RateSearch, TheNextLowerRateIsTriedToTheEnd) {
  Search search;
  EXPECT_EQ(search.go({{3e-4, 3}, {1e-3, 1}, {3e-3, 2}}, {{1e-3, 1}, {3e-4, 1.1}}), 1e-3);
  EXPECT_EQ(search.whole_tried, (std::vector<double>{1e-3, 3e-4}));
}

// Lower rates that were tried are those of the grid, where it has one, and below it the grid goes on.
TEST(RateSearch, GoesDownWhileTheLossFalls) {
  Search search;
  const double chosen = search.go({{3e-4, 3}, {1e-3, 2}, {3e-3, 1}, {1e-2, 1.5}},
                                  {{3e-3, kInfinite}, {1e-3, 2}, {3e-4, 1.5}, {9e-5, 1.6}});
  EXPECT_EQ(chosen, 3e-4);
  ASSERT_EQ(search.whole_tried.size(), 4U);
  EXPECT_NEAR(search.whole_tried.back(), 9e-5, 1e-12);
  const TriedRates& tried = search.silent.log.rates.front();
  EXPECT_TRUE(tried.is_chosen_inside());
  // The records are those of the short runs, and of the whole ones that were not chosen.
  std::multiset<uint64_t> seeds;
  for (const nlohmann::json& run : tried.training) seeds.insert(run.at("seed").get<uint64_t>());
  EXPECT_EQ(seeds, (std::multiset<uint64_t>{1, 1, 1, 1000, 1000, 1000, 1000}));
}

// 3e-3 is not told from the best, 1e-3; the way from it to 3e-4 counts no rate above 1e-3.
TEST(RateSearch, BeginsAtTheHighestRateThatIsNotToldFromTheBest) {
  const Losses short_losses = {{3e-4, 3}, {1e-3, 2}, {3e-3, 2.04}};
  Search higher;
  EXPECT_EQ(higher.go(short_losses, {{3e-3, 1}, {1e-3, 1.5}}), 3e-3);
  EXPECT_EQ(higher.whole_tried, (std::vector<double>{3e-3, 1e-3}));
  EXPECT_FALSE(higher.silent.log.rates.front().is_chosen_inside());  // nothing above it was tried
  Search lower;
  EXPECT_EQ(lower.go(short_losses, {{3e-3, 1.5}, {1e-3, 1}, {3e-4, 1.2}}, /*lower=*/1), 1e-3);
  EXPECT_EQ(lower.whole_tried, (std::vector<double>{3e-3, 1e-3, 3e-4}));
  EXPECT_TRUE(lower.silent.log.rates.front().is_chosen_inside());
}

TEST(RateSearch, WholeRunsWithItsOwnSeedAreAllRecorded) {
  Search search;
  search.whole_seed = 1000;
  search.go({{3e-4, 3}, {1e-3, 1}, {3e-3, 2}}, {{1e-3, 1}, {3e-4, 1.1}});
  EXPECT_EQ(search.silent.log.rates.front().training.size(), 5U);
}

TEST(RateSearch, EndsAtTheLowestRateThatMayBeTried) {
  Search search;
  EXPECT_EQ(search.go({{3e-4, 3}, {1e-3, 1}, {3e-3, 2}}, {{1e-3, 1}, {3e-4, 0.9}}, /*lower=*/1), 3e-4);
  EXPECT_FALSE(search.silent.log.rates.front().is_chosen_inside());
}

TEST(RateSearch, RatesThatAllDivergeHaveALowestOne) {
  Search search;
  search.go({{3e-4, 3}, {1e-3, 1}, {3e-3, 2}}, {{1e-3, kInfinite}, {3e-4, kInfinite}}, /*lower=*/1);
  EXPECT_FALSE(search.silent.log.rates.front().is_chosen_inside());
}

}  // namespace
}  // namespace rf::reproduce
