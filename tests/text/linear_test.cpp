// Tokenizing takes steps and memory in proportion to the text, also where a line is all of it, has no place to part it
// at, or is full of what added tokens almost match. Steps are counted, not timed; memory is what operator new gave out.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <span>

#include "rf/text/batch.h"
#include "rf/text/decoding_stream.h"
#include "support.h"

namespace rf::text {
int64_t counted_steps();  // counted_steps.cpp
}

namespace {

std::atomic<size_t> g_held{0}, g_peak{0};

void* allocate(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const size_t held = g_held += malloc_usable_size(memory);
  for (size_t peak = g_peak; peak < held && !g_peak.compare_exchange_weak(peak, held);) {
  }
  return memory;
}

void release(void* memory) {
  if (memory != nullptr) g_held -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }

namespace rf::text {
namespace {

constexpr size_t kTextBytes = size_t{1} << 20;  // larger buffers are not kept
constexpr size_t kMaxBytesPerByte = 8;          // of memory for a byte of the text, the text itself among them

// The bytes, "aa", "aaaa", "aaaaaaaa", and words of five letters with the space before them.
TokenizerParts word_parts(const ByteLevelOptions& options) {
  std::vector<Merge> merges;
  for (const std::string a : {"a", "aa", "aaaa"}) merges.emplace_back(a, a);
  for (const std::string word : {" hello", " world"}) {
    for (size_t i = 1; i < word.size(); ++i) merges.emplace_back(word.substr(0, i), word.substr(i, 1));
  }
  return byte_level_parts(options, merges);
}

const std::vector<std::string> kWords = specials_and({"hello", "world", "a", "##a", "e", "##e"});

Tokenizer word_pieces() { return {Vocabulary(kWords), {}}; }

TokenizerParts word_piece_parts() {
  const TokenizerOptions options;
  return {Vocabulary(kWords), options, {}, {}, {}};
}

// The tokenizer with these tokens added, whose ids follow.
Tokenizer with_added(const TokenizerParts& parts, std::vector<AddedToken> added) {
  const Vocabulary& base = parts.vocabulary;
  std::vector<std::string> tokens;
  for (int64_t id = 0; id < base.size(); ++id) tokens.push_back(base.token(id));
  for (AddedToken& token : added) {
    token.id = base.find(token.content);
    if (token.id >= 0) continue;
    token.id = static_cast<int32_t>(tokens.size());
    tokens.push_back(token.content);
  }
  const Vocabulary vocabulary(tokens, base.special_names(), base.size());
  return Tokenizer(TokenizerParts{vocabulary, parts.options, std::move(added), parts.merges, {}});
}

// The peak memory of `call`, without memory in use before.
template <typename Call>
size_t peak_of(Call call) {
  const size_t before = g_held;
  g_peak = before;
  call();
  return g_peak - before;
}

// The steps for a text four times as long are four times as many, except the steps that do not depend on it.
// call(make(size)) is counted; it takes a step for each of the `size` bytes or tokens.
template <typename Make, typename Call>
void expect_linear([[maybe_unused]] Make make, [[maybe_unused]] Call call,
                   [[maybe_unused]] size_t size = size_t{1} << 14) {
#ifdef RF_COUNTS_STEPS
  const auto steps = [&](size_t of_size) {
    const auto given = make(of_size);
    const int64_t before = counted_steps();
    call(given);
    return counted_steps() - before;
  };
  const int64_t some = steps(size), many = steps(4 * size);
  EXPECT_GE(some, static_cast<int64_t>(size));
  EXPECT_LT(many, 5 * some);
#else
  GTEST_SKIP() << "NOT TESTED: only the sanitizer build counts steps";
#endif
}

template <typename Make>
void expect_linear_encoding(const Tokenizer& tokenizer, Make make, size_t size = size_t{1} << 14) {
  expect_linear(
      make, [&](const std::string& text) { EXPECT_GT(encode(tokenizer, text).size(), 0U); }, size);
}

TEST(LinearSteps, ByteMergesOfOneLongWord) {
  const Tokenizer tokenizer(word_parts({.use_regex = false}));
  for (const std::string_view part : {"a", "ab", " hello world", "ahello"}) {
    expect_linear_encoding(tokenizer, [part](size_t size) { return repeated(part, size); });
  }
}

// A token that the text begins with at every byte, and never ends with.
TEST(LinearSteps, LongAddedTokens) {
  const auto expect_linear_tokens = [](auto contents_of, std::string_view part) {
    const auto make = [&](size_t size) {
      std::vector<AddedToken> added;
      for (const std::string& content : contents_of(size)) added.push_back({.content = content});
      return std::pair(with_added(word_piece_parts(), added), repeated(part, size));
    };
    expect_linear(make, [](const auto& given) { EXPECT_GT(encode(given.first, given.second).size(), 0U); });
  };
  using Contents = std::vector<std::string>;
  expect_linear_tokens([](size_t size) { return Contents{std::string(size / 4, 'a') + "b"}; }, "a");
  expect_linear_tokens(
      [](size_t size) {
        return Contents{repeated("ab", size / 8), repeated("ab", size / 8) + "c"};
      },
      "ab");
}

TEST(LinearSteps, AddedTokensThatTakeWhiteSpace) {
  for (const bool left : {true, false}) {
    std::vector<AddedToken> added;
    for (const char* content : {" ", "\n", "a"}) added.push_back({.content = content, .lstrip = left, .rstrip = !left});
    const Tokenizer tokenizer = with_added(word_piece_parts(), added);
    for (const std::string_view text : {" ", "\t\n", " a"}) {
      expect_linear_encoding(tokenizer, [text](size_t size) { return repeated(text, size); });
    }
  }
}

// Sections that have the rest of the white space in common, each of which is trimmed; "e\u0301" is rewritten.
TEST(LinearSteps, TrimmedWhiteSpaceOfAddedTokens) {
  for (const bool normalized : {true, false}) {
    const Tokenizer tokenizer = with_added(word_parts({.nfc = true, .add_prefix_space = true, .trim_offsets = true}),
                                           {{.content = " ", .rstrip = true, .normalized = normalized},
                                            {.content = "x", .rstrip = true, .normalized = normalized},
                                            {.content = "\t", .normalized = normalized}});
    for (const std::string front : {"x", "e\u0301"}) {
      for (const std::string_view text : {" ", " \t", " \n\t"}) {
        expect_linear_encoding(
            tokenizer, [&](size_t size) { return front + repeated(text, size); }, size_t{1} << 13);
      }
    }
  }
}

// None is too long to be cut into pieces, so that all of it waits for its end.
TEST(LinearSteps, LongWordsOfBert) {
  const Tokenizer tokenizer{Vocabulary(kWords), {.max_word_chars = 1 << 30}};
  for (const std::string part : {"\u00C9", "\u00C9e\u0301", "\u00C9."}) {
    expect_linear_encoding(
        tokenizer, [&](size_t size) { return repeated(part, size); }, size_t{1} << 17);
  }
}

// Text that is settled is not decoded again.
TEST(LinearSteps, StreamsOfTokens) {
  const std::vector<std::string> tokens = specials_and({".", "?", "'", "n", "##t", "n't", "do", "it"});
  const Tokenizer bytes = byte_tokenizer();
  TokenizerOptions cleaned, cleaned_bytes = bytes.options();
  cleaned.decoding = {.cleanup = false, .clean_up_tokenization_spaces = true};
  cleaned_bytes.decoding.clean_up_tokenization_spaces = true;
  for (const Tokenizer& tokenizer :
       {bytes, Tokenizer(Vocabulary(tokens), cleaned), Tokenizer(bytes.vocabulary(), cleaned_bytes)}) {
    const auto make = [&](size_t size) {
      constexpr std::string_view kBytes = "    ...'''nnttmsvere?!,x\xFF\xE4";
      const bool has_pieces = tokenizer.options().pipeline.has_word_pieces();
      std::mt19937 random(2);
      Ids ids(size);
      for (int32_t& id : ids) {
        id = has_pieces ? int32_t(random() % tokens.size()) : int32_t{uint8_t(kBytes[random() % kBytes.size()])};
      }
      return ids;
    };
    const auto decode = [&](const Ids& ids) {
      DecodingStream stream(tokenizer, SkipSpecials::kYes);
      for (const int32_t id : ids) {
        stream.add(id);
        stream.text();
      }
    };
    expect_linear(make, decode, 1000);
  }
}

// What a line of `tokenize` takes, one text in a row of a BatchEncoder; and the number of its tokens.
std::pair<size_t, size_t> row_memory(const Tokenizer& tokenizer, const std::string& text) {
  size_t tokens = 0;
  const size_t memory = peak_of([&] {
    BatchOptions options;
    options.threads = 1;
    BatchEncoder encoder(tokenizer, options);
    const TextPair sample{text};
    const std::span<const Row> rows = encoder.encode({&sample, 1});
    EXPECT_EQ(rows.size(), 1U);
    tokens = rows.front().size();
  });
  return {memory, tokens};
}

void expect_little_memory(const Tokenizer& tokenizer, std::string_view part, size_t size = kTextBytes) {
  const std::string text = repeated(part, size);
  const auto [memory, tokens] = row_memory(tokenizer, text);
  EXPECT_GT(tokens, 0U);
  EXPECT_LT(memory, (kMaxBytesPerByte - 1) * text.size()) << part.substr(0, 20);
}

TEST(LinearMemory, OfTextsThatAreNotWrittenDown) {
  for (const std::string_view part : {"hello world ", "a", "A", "\u00C9", "hello W\u00F6rld "}) {
    expect_little_memory(word_pieces(), part);
  }
  for (const ByteLevelOptions& options :
       {ByteLevelOptions{}, {.use_regex = false}, {.nfc = true, .add_prefix_space = true, .trim_offsets = true}}) {
    for (const std::string_view part : {" hello world", "a"})
      expect_little_memory(Tokenizer(word_parts(options)), part);
  }
  // A few characters that are rewritten, and one byte that is not UTF-8.
  const std::string mixed = repeated(" hello world", kTextBytes / 8) + " e\u0301 world hello";
  expect_little_memory(Tokenizer(word_parts({.nfc = true})), mixed, 2 * kTextBytes);
  expect_little_memory(Tokenizer(word_parts({})), mixed + "\xFF hello", 2 * kTextBytes);
}

constexpr size_t kMaxBytesPerToken = 32;                             // where no text is written down
constexpr size_t kMaxBytesPerWrittenByte = 128;                      // of a text that is, its row among them
constexpr size_t kOddBytes = (size_t{1} << 19) + (size_t{1} << 15);  // buffers that double have just done so

TEST(LinearMemory, RowsOfDenseTokens) {
  const Tokenizer byte_pairs(word_parts({}));
  for (const std::string_view part : {".", "a.", "a "}) {
    const std::string text = repeated(part, kOddBytes);
    for (const Tokenizer& tokenizer : {word_pieces(), byte_pairs}) {
      const auto [memory, tokens] = row_memory(tokenizer, text);
      EXPECT_LT(memory, kMaxBytesPerToken * tokens) << part;
    }
  }
}

// The added token occurs nowhere.
TEST(LinearMemory, TextsThatAreWrittenDown) {
  const std::vector<std::string> tokens = specials_and({"zz"});
  const std::vector<AddedToken> added = {{.content = "zz", .id = 5, .normalized = true}};
  const TokenizerParts normalized{Vocabulary(tokens), TokenizerOptions(), added, {}, {}};
  const TokenizerOptions legacy{.pipeline = Pipeline::kBertLegacy}, long_words{.max_word_chars = kOddBytes};
  for (const Tokenizer& tokenizer : {Tokenizer(normalized), Tokenizer(Vocabulary(tokens), legacy),
                                     Tokenizer(Vocabulary(tokens), long_words), Tokenizer(word_parts({.nfc = true}))}) {
    for (const std::string_view part : {"hello world ", "\u00C9", "\u4E2D", "e\u0301 b"}) {
      const std::string text = repeated(part, kOddBytes);
      EXPECT_LT(row_memory(tokenizer, text).first, kMaxBytesPerWrittenByte * text.size()) << part;
    }
  }
}

// Of a text that is truncated, only the beginning takes memory, in every pipeline.
TEST(LinearMemory, FirstTokensOfLongTexts) {
  constexpr size_t kMaxTokens = 100, kBytes = size_t{1} << 19;
  const std::vector<std::string> tokens = specials_and({"zz"});
  std::vector<Tokenizer> tokenizers = {word_pieces()};
  for (const Pipeline pipeline : {Pipeline::kBertLegacy, Pipeline::kRoformer, Pipeline::kWobert}) {
    TokenizerOptions options{.pipeline = pipeline};
    if (pipeline.segments_words()) {
      const Directory dir;
      options.dictionary = Dictionary::load(dir.write("words.txt", "hello 5\n"), {}, {""});
    }
    tokenizers.emplace_back(Vocabulary(tokens), options);
  }
  const std::vector<AddedToken> added = {{.content = "zz", .id = 5, .normalized = true}};
  tokenizers.emplace_back(TokenizerParts{Vocabulary(tokens), TokenizerOptions(), added, {}, {}});
  for (const ByteLevelOptions& options : {ByteLevelOptions{}, {.use_regex = false}, {.nfc = true}}) {
    tokenizers.emplace_back(word_parts(options));
  }
  TokenizerParts byte_level_added = word_parts({.nfc = true});
  byte_level_added.added = {{.content = "a", .id = byte_level_added.vocabulary.find("a"), .normalized = true}};
  tokenizers.emplace_back(byte_level_added);
  for (const Tokenizer& tokenizer : tokenizers) {
    for (const std::string_view part : {"hello world ", "\u00C9 b ", "\u4ECA\u5929\uFF0C", "\xFF c "}) {
      const bool is_rewritten = !tokenizer.options().byte_level.use_regex && part.front() == '\xFF';
      if (is_rewritten) continue;  // one word, of which all is
      const auto memory = [&](size_t bytes) {
        const std::string text = repeated(part, bytes);
        return peak_of([&] {
          Encoding out;
          tokenizer.encode_first(text, kMaxTokens, out);
          EXPECT_EQ(out.size(), kMaxTokens);
        });
      };
      EXPECT_LT(memory(8 * kBytes), memory(kBytes) + kBytes)
          << name(tokenizer.options().pipeline) << ", " << testing::PrintToString(std::string(part));
    }
  }
}

TEST(LinearMemory, EncodingThatIsUsedAgain) {
  const Tokenizer tokenizer = word_pieces();
  for (const std::string_view part : {"hello world ", "a ", "a.", "\u00C9 "}) {
    const std::string text = repeated(part, size_t{1} << 14);
    Encoding fresh, again;
    tokenizer.encode(text, fresh);
    tokenizer.encode("hello", again);
    again.clear();
    tokenizer.encode(text, again);
    EXPECT_EQ(again.ids, fresh.ids) << part;
    EXPECT_LE(again.ids.capacity(), 2 * fresh.size()) << part;
  }
}

}  // namespace
}  // namespace rf::text
