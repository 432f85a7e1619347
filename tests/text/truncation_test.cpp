// The first tokens of a text are those of the whole text, for every pipeline, wherever reading stops. The rows that
// BatchEncoder makes of them: tests/oracles/test_batch.py and tests/python/test_tokenizer.py. What else
// holds for every line of the table of pipelines.
#include <algorithm>
#include <limits>
#include <random>

#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"
#include "rf/text/batch.h"
#include "support.h"

namespace rf::text {
namespace {

struct NamedTokenizer {
  std::string name;
  Tokenizer tokenizer;
};

const std::vector<std::string> kUserPieces = {
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a",   "##a", "b",  "##b", "c", "ab", "##bc", "今",  "天", "天气",
    "好",    "。",    "，",    "1",     "e",      "##e", "é",   "가", "'",   "s", ".",  "zab",  "z好", "z b"};
// Tokens that a user added: a word, one with CJK characters, one with a space.
constexpr int32_t kWord = 26, kChineseWord = 27, kWordWithSpace = 28;

enum class Added { kNone, kRaw, kNormalized, kNormalizedWithSpace, kNormalizedThatStrips };
constexpr Added kAllAdded[] = {Added::kNone, Added::kRaw, Added::kNormalized, Added::kNormalizedWithSpace,
                               Added::kNormalizedThatStrips};

std::vector<AddedToken> added_tokens(Added added) {
  const bool normalized = added >= Added::kNormalized;
  std::vector<AddedToken> tokens;
  if (added != Added::kNone) {
    tokens.push_back({.content = "zab", .id = kWord, .single_word = true, .normalized = normalized});
    tokens.push_back({.content = "z好", .id = kChineseWord, .normalized = normalized});
  }
  if (added == Added::kNormalizedThatStrips) tokens[1].lstrip = tokens[1].rstrip = true;
  if (added == Added::kRaw || added == Added::kNormalizedWithSpace) {
    tokens.push_back({.content = "z b", .id = kWordWithSpace, .normalized = normalized});
  }
  return tokens;
}

Tokenizer word_pieces(Pipeline pipeline, Added added, Case letter_case, const Directory& dir) {
  TokenizerOptions options{.pipeline = pipeline, .letter_case = letter_case};
  if (pipeline.segments_words()) {
    options.dictionary = Dictionary::load(dir.write("words.txt", "今天 15960\n天气 2657\n好 92543\nab 5\n"), {}, {""});
  }
  return Tokenizer(TokenizerParts{Vocabulary(kUserPieces), options, added_tokens(added), {}, {}});
}

Tokenizer with_added(TokenizerParts parts, Added added) {
  std::vector<std::string> tokens;
  for (int64_t id = 0; id < parts.vocabulary.size(); ++id) tokens.push_back(parts.vocabulary.token(id));
  parts.added = added_tokens(added);
  for (AddedToken& token : parts.added) {
    token.id = static_cast<int32_t>(tokens.size());
    tokens.push_back(token.content);
  }
  SpecialNames names = parts.vocabulary.special_names();
  names.pad = "<pad>";
  names.cls = "<cls>";
  names.sep = "<sep>";
  tokens.insert(tokens.end(), {names.pad, names.cls, names.sep});
  if (parts.options.unigram != nullptr) {
    UnigramOptions options = *parts.options.unigram;
    options.scores.resize(tokens.size(), -20);
    parts.options.unigram = std::make_shared<const UnigramOptions>(std::move(options));
  }
  parts.vocabulary = Vocabulary(std::move(tokens), names);
  return Tokenizer(std::move(parts));
}

Tokenizer byte_pairs(const ByteLevelOptions& byte_level, Added added) {
  return with_added(
      byte_level_parts(byte_level, {{"a", "b"}, {"ab", "c"}, {" ", "a"}, {"\xEF", "\xBC"}, {"a", "a"}, {"aa", "aa"}}),
      added);
}

std::vector<NamedTokenizer> all_tokenizers() {
  const Directory dir;
  std::vector<NamedTokenizer> all;
  for (const Pipeline pipeline : all_pipelines()) {
    if (!pipeline.has_word_pieces()) continue;
    for (const Added added : kAllAdded) {
      if (added >= Added::kNormalized && !(pipeline == Pipeline::kBert)) continue;
      const int number = static_cast<int>(added);
      const Case letter_case = number % 2 == 0 ? Case::kLower : Case::kKeep;
      all.push_back({fmt::format("{} {}", name(pipeline), number), word_pieces(pipeline, added, letter_case, dir)});
    }
  }
  const ByteLevelOptions variants[] = {{},
                                       {.nfc = true, .add_prefix_space = true},
                                       {.nfc = true, .splits = {{SplitStep::Kind::kDigits}}},
                                       {.nfc = true, .add_prefix_space = true, .trim_offsets = true},
                                       {.nfc = true, .use_regex = false}};
  for (size_t i = 0; i < std::size(variants); ++i) {
    for (const Added added : kAllAdded) {
      all.push_back({fmt::format("bytes {} {}", i, static_cast<int>(added)), byte_pairs(variants[i], added)});
    }
  }
  using Prefix = ByteFallbackOptions::Prefix;
  for (const Prefix prefix : {Prefix::kNever, Prefix::kFirst, Prefix::kEven}) {
    const ByteFallbackOptions options{.prefix = prefix, .in_normalizer = prefix != Prefix::kFirst};
    for (const Added added : kAllAdded) {
      all.push_back({fmt::format("fallback {} {}", static_cast<int>(prefix), static_cast<int>(added)),
                     with_added(byte_fallback_parts(options), added)});
    }
  }
  using Kind = NormalizerStep::Kind;
  for (const Added added : kAllAdded) {
    UnigramOptions options{.normalizers = {{.kind = Kind::kReplace, .text = "ab", .content = "ba"}, {Kind::kNfc}},
                           .split_spaces = added != Added::kNone};
    all.push_back({fmt::format("unigram {}", static_cast<int>(added)), with_added(unigram_parts(options), added)});
  }
  return all;
}

// Words, marks, white space, punctuation, CJK characters, added tokens and ill-formed bytes in any order. Some texts
// have few places to part them at, or none.
class RandomTexts {
 public:
  explicit RandomTexts(uint32_t seed) : random_(seed) {}

  std::string next(size_t bytes) {
    const size_t kinds = 1 + below(std::size(kUnits));
    std::vector<std::string> units;
    for (size_t i = 0; i < kinds; ++i) units.emplace_back(kUnits[below(std::size(kUnits))]);
    if (below(3) == 0) units.emplace_back(std::string(1 + below(300), 'a'));
    std::string text;
    while (text.size() < bytes) text += units[below(units.size())];
    return text;
  }
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

 private:
  static constexpr std::string_view kUnits[] = {
      "a",       "ab",     "abc ",   "Ab ",    " ",    "  ",   "\n",       "\t",     "\r\n",   "\u00A0",   ",",
      ". ",      "'s",     "'",      "1",      "23 ",  "今天", "天气",     "好",     "，",     "。",       "é",
      "e\u0301", "\u0301", "\u0323", "\u0345", "İ",    "Σ",    "가",       "\u1100", "\u1161", "か\u3099", "\u0958",
      "\u064B",  "ا",      "،",      "\u200B", "\x01", "\xFF", "\xE4\xB8", "😀",      "[MASK]", "[SEP]",    "zab",
      "zab ",    "ZAB",    "z好",    " z好 ",  "z b",  "z",    "x",        "\u2028", "🙂 a", "ﬁ"};
  std::mt19937 random_;
};

// `got` has the first `wanted` tokens of the whole text.
void expect_first(const Encoding& got, const Encoding& whole, size_t wanted, std::string_view text) {
  const size_t count = std::min(wanted, whole.size());
  const auto first = [count](const auto& column) {
    return std::vector(column.begin(), column.begin() + static_cast<ptrdiff_t>(count));
  };
  for (const auto column :
       {&Encoding::ids, &Encoding::byte_begin, &Encoding::byte_end, &Encoding::char_begin, &Encoding::char_end}) {
    EXPECT_EQ(got.*column, first(whole.*column));
  }
  EXPECT_EQ(got.starts_word, first(whole.starts_word));
  const size_t end = count < wanted ? text.size() : count == 0 ? 0 : static_cast<size_t>(whole.byte_end[count - 1]);
  EXPECT_EQ(got.replaced_bytes, count_ill_formed(text.substr(0, end)));
}

Encoding first_tokens(const Tokenizer& tokenizer, std::string_view text, size_t max_tokens) {
  Encoding out;
  tokenizer.encode_first(text, max_tokens, out);
  return out;
}

TEST(FirstTokens, AreThoseOfTheWholeText) {
  constexpr size_t kShort = 200, kLong = 70'000;  // more than a stretch
  RandomTexts texts(1);
  for (const NamedTokenizer& each : all_tokenizers()) {
    for (int round = 0; round < 31; ++round) {
      const std::string text = texts.next(round < 30 ? texts.below(kShort) : kLong);
      SCOPED_TRACE(each.name + ": " + text.substr(0, kShort));
      Encoding whole;
      each.tokenizer.encode(text, whole);
      EXPECT_EQ(whole.replaced_bytes, count_ill_formed(text));
      const size_t size = whole.size(), some = texts.below(size + 1);
      std::vector<size_t> counts = {some, size};
      if (round < 30) counts.insert(counts.end(), {0, 1, size + 1, std::numeric_limits<size_t>::max()});
      for (const size_t wanted : counts) {
        expect_first(first_tokens(each.tokenizer, text, wanted), whole, wanted, text);
      }
      if (HasFailure()) return;
    }
  }
}

TEST(Pipelines, AreFoundByTheirNames) {
  const std::string message = error_of([] { pipeline_of_name("Bert"); });
  expect_has(message, "[tokenizer] pipeline must be bert, bert-legacy, roformer, wobert");
  for (const Pipeline pipeline : all_pipelines()) {
    EXPECT_TRUE(pipeline_of_name(name(pipeline)) == pipeline) << name(pipeline);
    expect_has(message, std::string(name(pipeline)));
  }
}

TEST(Pipelines, AreLoadedAsTheyWereSaved) {
  RandomTexts texts(4);
  for (size_t i = 0; i < 2 * all_pipelines().size(); ++i) {
    const Pipeline pipeline = all_pipelines()[i / 2];
    const Directory dir;
    const Tokenizer made =
        pipeline.has_word_pieces() ? word_pieces(pipeline, Added::kNone, i % 2 == 0 ? Case::kLower : Case::kKeep, dir)
        : pipeline == Pipeline::kByteLevelBpe ? byte_pairs({}, Added::kNone)
        : pipeline == Pipeline::kUnigram      ? with_added(unigram_parts({.split_spaces = i % 2 == 0}), Added::kNone)
                                              : with_added(byte_fallback_parts({}), Added::kNone);
    std::filesystem::create_directory(dir / "saved");
    made.save(dir / "saved");
    for (const std::string& file : made.saved_files()) EXPECT_TRUE(std::filesystem::exists(dir / ("saved/" + file)));
    const Tokenizer loaded = Tokenizer::load(dir / "saved");
    EXPECT_TRUE(loaded.options().pipeline == pipeline);
    EXPECT_EQ(loaded.vocabulary().hash(), made.vocabulary().hash());
    for (int round = 0; round < 20; ++round) {
      const std::string text = texts.next(texts.below(200));
      const Encoding expected = made.encode_with_specials(text), got = loaded.encode_with_specials(text);
      EXPECT_EQ(got.ids, expected.ids) << name(pipeline) << ": " << text;
      EXPECT_EQ(got.char_end, expected.char_end);
    }
  }
}

// What is given to it when it is full is in vain.
class FullSink : public WordSink {
 public:
  void take(const Word&) override {
    ++words;
    full_ = words >= 3;
  }
  size_t words = 0;
};

TEST(FirstTokens, EndTheSplittingOfWords) {
  const Directory dir;
  for (const Pipeline pipeline : all_pipelines()) {
    if (!pipeline.has_word_pieces()) continue;
    const Tokenizer made = word_pieces(pipeline, Added::kNone, Case::kLower, dir);
    const PieceTrie trie(made.vocabulary());
    for (const std::string_view part : {"ab ", "é,", "今，"}) {
      FullSink sink;
      const SplitterPtr splitter = pipeline.entry().make_splitter(made.options(), made.vocabulary(), trie);
      splitter->split(repeated(part, 1'000'000), sink);
      EXPECT_LT(sink.words, 20'000U) << name(pipeline) << ", " << part;
    }
  }
}

TEST(FirstTokens, AreAppended) {
  const Tokenizer bert{Vocabulary(kUserPieces), {}};
  Encoding out;
  bert.encode_first("a\xFF a a", 1, out);
  EXPECT_EQ(out.replaced_bytes, 0);
  bert.encode_first("a\xFF b\xFF b", 2, out);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{5, 5, 7}));
  EXPECT_EQ(out.replaced_bytes, 1);
  bert.encode_first("b\xFF", 2, out);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{5, 5, 7, 7}));
  EXPECT_EQ(out.replaced_bytes, 2);
  EXPECT_EQ(out.byte_begin, (Ids{0, 0, 3, 0}));
  out.clear();
  EXPECT_EQ(out.size(), 0U);
  EXPECT_EQ(out.replaced_bytes, 0);
}

// A token of the normalised text that has a space keeps a text in one piece, and occurs nowhere.
TEST(FirstTokens, StretchesOfNormalisedTextChangeNothing) {
  RandomTexts texts(2);
  const Directory dir;
  const ByteLevelOptions variants[] = {{.nfc = true}, {.nfc = true, .add_prefix_space = true, .trim_offsets = true}};
  std::vector<std::pair<Tokenizer, Tokenizer>> pairs;
  const auto add = [&](const Tokenizer& divided, const Tokenizer& undivided) {
    pairs.emplace_back(divided, undivided);
  };
  for (const Case letter_case : {Case::kLower, Case::kKeep}) {
    add(word_pieces(Pipeline::kBert, Added::kNormalized, letter_case, dir),
        word_pieces(Pipeline::kBert, Added::kNormalizedWithSpace, letter_case, dir));
  }
  for (const ByteLevelOptions& options : variants) {
    add(byte_pairs(options, Added::kNormalized), byte_pairs(options, Added::kNormalizedWithSpace));
  }
  for (const auto& [divided, undivided] : pairs) {
    std::vector<std::string> given;
    for (int round = 0; round < 4; ++round) given.push_back(texts.next(80'000));
    for (const std::string_view part : {"a  b", "a.，", "ab。\n", "\u0958，", "ا\u064B，a"}) {
      for (const std::string front : {"", "x", "xx"}) {  // another place is the first after a stretch
        given.push_back(front + repeated(part, 70'000));
      }
    }
    for (std::string& text : given) {
      for (size_t at; (at = text.find("z b")) != std::string::npos;) text.replace(at, 3, "zab");
      SCOPED_TRACE(text.substr(0, 100));
      Encoding got, wanted;
      divided.encode(text, got);
      undivided.encode(text, wanted);
      ASSERT_EQ(std::tie(got.ids, got.byte_end, got.char_begin),
                std::tie(wanted.ids, wanted.byte_end, wanted.char_begin));
      ASSERT_EQ(std::tie(got.starts_word, got.replaced_bytes), std::tie(wanted.starts_word, wanted.replaced_bytes));
    }
  }
}

// Added tokens with white space in them, or around them, hold a long text together.
TEST(FirstTokens, StretchesDoNotCutAddedTokens) {
  const Directory dir;
  for (const auto& [added, part] :
       {std::pair(Added::kNormalizedWithSpace, "z b "), {Added::kNormalizedThatStrips, " z好 "}}) {
    const std::string text = repeated(part, 200'000);
    for (const Tokenizer& tokenizer :
         {word_pieces(Pipeline::kBert, added, Case::kLower, dir), byte_pairs({.nfc = true}, added)}) {
      Encoding out;
      tokenizer.encode(text, out);
      const auto count = static_cast<size_t>(std::ranges::count(out.ids, out.ids.front()));
      EXPECT_EQ(count, text.size() / std::string_view(part).size()) << name(tokenizer.options().pipeline);
      if (added == Added::kNormalizedThatStrips) {
        EXPECT_EQ(out.byte_end.back(), static_cast<int32_t>(text.size()));
        for (size_t i = 1; i < out.size(); ++i) ASSERT_EQ(out.byte_begin[i], out.byte_end[i - 1]);
      }
    }
  }
}

// Of two texts that are both too long, the longer one keeps the odd token, and messages have the whole numbers.
TEST(FirstTokens, TellTheLongerTextOfAPair) {
  const Tokenizer bert{Vocabulary(kUserPieces), {}};
  const auto text_of = [](size_t tokens) { return repeated("a ", 2 * tokens); };
  for (const auto& [first, second, kept] :
       {std::tuple(500, 40, 6), {40, 500, 5}, {500, 500, 5}, {12, 13, 5}, {13, 12, 6}, {11, 12, 5}, {500, 499, 6}}) {
    const std::string texts[] = {text_of(static_cast<size_t>(first)), text_of(static_cast<size_t>(second))};
    BatchEncoder encoder(bert, {.truncation = Truncation::kLongestFirst, .max_length = 14, .threads = 1});
    const TextPair sample{texts[0], texts[1]};
    const Row& row = encoder.encode({&sample, 1}).front();
    EXPECT_EQ(row.size(), 14U);
    EXPECT_EQ(std::ranges::count(row.text_index, 0), kept) << first << " and " << second;
  }
  const std::string texts[] = {text_of(50), text_of(70)};
  const TextPair sample{texts[0], texts[1]};
  for (const auto& [truncation, message] :
       {std::pair(Truncation::kOnlyFirst,
                  "the first text must have more than the 109 tokens that are too many, got 50"),
        {Truncation::kOnlySecond, "the second text must have more than the 109 tokens that are too many, got 70"}}) {
    BatchEncoder encoder(bert, {.truncation = truncation, .max_length = 14, .threads = 1});
    expect_has(error_of([&] { encoder.encode({&sample, 1}); }), message);
  }
}

// Up to the last token that is kept; with windows or where the front is cut off, all.
TEST(FirstTokens, CountWhatIsIllFormedBeforeTheirEnd) {
  const Tokenizer bert{Vocabulary(kUserPieces), {}};
  const TextPair sample{"a\xFF a\xFF a\xFF a\xFF\xFF"};
  const auto replaced = [&](BatchOptions options) {
    options.truncation = Truncation::kLongestFirst;
    options.threads = 1;
    BatchEncoder encoder(bert, options);
    return encoder.encode({&sample, 1}).front().tokens.replaced_bytes;
  };
  EXPECT_EQ(replaced({.max_length = 4}), 1);
  EXPECT_EQ(replaced({.max_length = 5}), 2);
  EXPECT_EQ(replaced({.max_length = 2}), 0);
  EXPECT_EQ(replaced({.max_length = 6}), 5);
  EXPECT_EQ(replaced({.overflow = Overflow::kRows, .max_length = 4}), 5);
  EXPECT_EQ(replaced({.truncation_side = Side::kLeft, .max_length = 4}), 5);
}

}  // namespace
}  // namespace rf::text
