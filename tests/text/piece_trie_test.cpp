// Longest-match look-up against a search through all tokens.
#include "models/piece_trie.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>
#include "support.h"

namespace rf::text {
namespace {

PieceTrie::Match longest_by_search(const Vocabulary& vocabulary, std::string_view text, std::string_view prefix) {
  PieceTrie::Match best{-1, 0};
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    std::string_view token = vocabulary.token(id);
    if (!token.starts_with(prefix)) continue;
    token.remove_prefix(prefix.size());
    if (token.size() > best.length && text.starts_with(token)) {
      best = {static_cast<int32_t>(id), static_cast<uint32_t>(token.size())};
    }
  }
  return best;
}

class RandomText {
 public:
  std::string operator()(size_t most) {
    const std::vector<std::string> letters = {"a", "b", "c", "#", "\u00E9", "\u4E2D", "\u4E2E", "\U0001F600"};
    std::string text;
    for (size_t i = random_() % (most + 1); i > 0; --i) text += letters[random_() % letters.size()];
    return text;
  }

 private:
  std::mt19937 random_{1};
};

TEST(PieceTrie, FindsTheLongestPiece) {
  RandomText random_text;
  std::vector<std::string> tokens = specials_and({});
  for (int i = 0; i < 2000; ++i) {
    const std::string token = (i % 2 == 0 ? "##" : "") + random_text(5);
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  }
  const Vocabulary vocabulary(tokens);
  const PieceTrie trie(vocabulary);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(8);
    const auto start = trie.longest(text, PieceTrie::kWordStart), want = longest_by_search(vocabulary, text, "");
    EXPECT_EQ(start.id, want.id) << text;
    EXPECT_EQ(start.length, want.length) << text;
    EXPECT_EQ(trie.longest(text, PieceTrie::kContinuation).id, longest_by_search(vocabulary, text, "##").id) << text;
    EXPECT_EQ(trie.find(text), text.empty() ? -1 : vocabulary.find(text)) << text;
  }
}

TEST(PieceTrie, VocabularyWithTooManyPrefixesIsRefused) {
  std::vector<std::string> tokens = specials_and({});
  std::mt19937 random(1);
  for (int i = 0; i < 170; ++i) {
    std::string token(100'000, 'a');
    for (char& c : token) c = static_cast<char>('a' + random() % 26);
    tokens.push_back(token);
  }
  const Vocabulary vocabulary(std::move(tokens));
  expect_contains(message_of([&] { PieceTrie{vocabulary}; }), "2^24");
}

}  // namespace
}  // namespace rf::text
