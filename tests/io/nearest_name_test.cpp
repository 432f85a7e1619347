// Misspelt names: what is near enough to be meant.
#include "rf/io/nearest_name.h"

#include <gtest/gtest.h>

#include <string>

namespace rf::io {
namespace {

constexpr std::string_view kKnown[] = {"hidden_size", "hidden_act", "info", "max_position_embeddings"};

TEST(NearestName, InsertionDeletionSubstitution) {
  EXPECT_EQ(nearest_name("hiden_size", kKnown), "hidden_size");
  EXPECT_EQ(nearest_name("hidden__act", kKnown), "hidden_act");
  EXPECT_EQ(nearest_name("imfo", kKnown), "info");
  EXPECT_EQ(nearest_name("info", kKnown), "info");
}

TEST(NearestName, TwoEditsOrAQuarterOfTheName) {
  EXPECT_EQ(nearest_name("inform", kKnown), "info");
  EXPECT_EQ(nearest_name("inform_", kKnown), "");
  EXPECT_EQ(nearest_name("mx_position_embeding", kKnown), "max_position_embeddings");  // 20 bytes, 4 edits
  EXPECT_EQ(nearest_name("window", kKnown), "");
}

TEST(NearestName, TheFirstOfEquals) {
  constexpr std::string_view kPair[] = {"ab", "ac"};
  EXPECT_EQ(nearest_name("ad", kPair), "ab");
}

TEST(NearestName, NothingForLongOrUnknown) {
  EXPECT_EQ(nearest_name(std::string(100'000, 'x'), kKnown), "");
  EXPECT_EQ(nearest_name("info", {}), "");
}

}  // namespace
}  // namespace rf::io
