// Misspelt names: what is near enough to be meant.
#include "rf/io/nearest_name.h"

#include <gtest/gtest.h>

#include <string>

namespace rf::io {
namespace {

constexpr std::string_view kKnown[] = {"hidden_size", "hidden_act", "info", "max_position_embeddings"};

TEST(NearestName, IsWithinTwoEditsOrAQuarterOfTheName) {
  const std::pair<std::string, std::string_view> cases[] = {{"hiden_size", "hidden_size"},
                                                            {"hidden__act", "hidden_act"},
                                                            {"imfo", "info"},
                                                            {"info", "info"},
                                                            {"inform", "info"},
                                                            {"inform_", ""},
                                                            {"mx_position_embeding", "max_position_embeddings"},
                                                            {"window", ""},
                                                            {std::string(100'000, 'x'), ""}};
  for (const auto& [given, nearest] : cases) EXPECT_EQ(nearest_name(given, kKnown), nearest) << given;
  EXPECT_EQ(nearest_name("info", {}), "");
  constexpr std::string_view kEquals[] = {"ab", "ac"};
  EXPECT_EQ(nearest_name("ad", kEquals), "ab");
}

}  // namespace
}  // namespace rf::io
