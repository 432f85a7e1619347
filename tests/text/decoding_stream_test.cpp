// Tokens that come one after another have the text that they have together, and what is settled stays.
#include "rf/text/decoding_stream.h"

#include <random>

#include "support.h"

namespace rf::text {
namespace {

// Pieces of what cleaning up removes spaces before, and pieces that part these.
const std::vector<std::string> kPieces = {
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".",   "?",   "!",  ",",  "'",   "n",   "t",   "##t", "m",   "s",
    "##s",   "ve",    "##ve",  "re",    "v",      "##e", "n't", "'m", "do", "not", "##'", "##n", "é",   "##é", "it"};

Tokenizer pieces(DecodingOptions::Join join, bool cleanup, bool clean_up_tokenization_spaces) {
  TokenizerOptions options;
  options.decoding = {join, cleanup, clean_up_tokenization_spaces};
  return {Vocabulary(kPieces), options};
}

Tokenizer bytes(bool clean_up_tokenization_spaces) {
  const Tokenizer made = byte_tokenizer();
  TokenizerOptions options = made.options();
  options.decoding.clean_up_tokenization_spaces = clean_up_tokenization_spaces;
  return Tokenizer({made.vocabulary(), options, made.added_tokens(), made.merges(), made.sequence_template()});
}

using Join = DecodingOptions::Join;

// Ids that often belong together: bytes of what is cleaned up, and of characters of two to four bytes.
std::vector<int32_t> random_ids(const Tokenizer& tokenizer, size_t count, std::mt19937& random) {
  constexpr std::string_view kBytes = "    ...'''nnttmsvere?!,xé中😀\xFF\xE4";
  std::vector<int32_t> ids;
  const auto byte = [&] { return int32_t{static_cast<uint8_t>(kBytes[random() % kBytes.size()])}; };
  while (ids.size() < count) {
    if (tokenizer.options().pipeline == Pipeline::kByteLevelBpe) {
      ids.push_back(byte());
    } else if (tokenizer.options().pipeline == Pipeline::kByteFallbackBpe) {
      ids.push_back(random() % 2 == 0 ? byte() : static_cast<int32_t>(256 + random() % 12));
    } else {
      ids.push_back(static_cast<int32_t>(random() % kPieces.size()));
    }
  }
  return ids;
}

TEST(DecodingStream, HasTheTextOfAllTokensAndKeepsWhatIsSettled) {
  std::mt19937 random(1);
  size_t cleaned = 0;
  for (const Tokenizer& tokenizer : {pieces(Join::kWordPieces, true, false), pieces(Join::kWordPieces, false, true),
                                     pieces(Join::kWordPieces, true, true), pieces(Join::kSpaces, false, true),
                                     bytes(false), bytes(true), Tokenizer(byte_fallback_parts({}))}) {
    for (int round = 0; round < 400; ++round) {
      const std::vector<int32_t> ids = random_ids(tokenizer, 40, random);
      const SkipSpecials skip = round % 2 == 0 ? SkipSpecials::kYes : SkipSpecials::kNo;
      const std::string last = tokenizer.decode(ids, skip);
      DecodingStream stream(tokenizer, skip);
      std::string settled;
      for (size_t i = 0; i < ids.size(); ++i) {
        stream.add(ids[i]);
        if (round % 3 == 0 && i % 4 != 3) continue;  // texts need not be asked for
        const DecodedText& now = stream.text();
        ASSERT_EQ(now.text, tokenizer.decode({ids.begin(), ids.begin() + static_cast<ptrdiff_t>(i) + 1}, skip));
        ASSERT_TRUE(now.text.starts_with(settled)) << now.text << " after " << settled;
        ASSERT_GE(now.settled, settled.size());
        settled = now.text.substr(0, now.settled);
        ASSERT_TRUE(last.starts_with(settled)) << settled << " of " << last;
      }
      cleaned += tokenizer.options().decoding.clean_up_tokenization_spaces ? 1 : 0;
    }
  }
  EXPECT_EQ(cleaned, 1600U);
}

}  // namespace
}  // namespace rf::text
