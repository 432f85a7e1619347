// Tokenizing takes steps and memory in proportion to the text, also where a line is all of it, has no place to part it
// at, or is full of what added tokens almost match. Steps are counted, not timed; memory is what operator new gave out.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <span>
#include <string>

#include "added_tokens/added_tokens.h"
#include "added_tokens/sections.h"
#include "models/byte_alphabet.h"
#include "models/byte_level_encoder.h"
#include "models/byte_pair_model.h"
#include "rf/text/batch.h"
#include "rf/text/tokenizer.h"
#include "splitters/bert_splitter.h"
#include "temp_dir.h"

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

constexpr size_t kTextBytes = size_t{1} << 22;
constexpr size_t kMaxBytesPerByte = 8;  // of memory for a byte of the text, the text itself among them

std::string repeated(std::string_view part, size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

// The bytes, "aa", "aaaa", "aaaaaaaa", and words of five letters with the space before them.
TokenizerParts byte_level_parts(const ByteLevelOptions& options) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    tokens.push_back(letters_of({&character, 1}));
  }
  std::vector<Merge> merges;
  const auto merge = [&](std::string_view left, std::string_view right) {
    merges.emplace_back(letters_of(left), letters_of(right));
    tokens.push_back(merges.back().first + merges.back().second);
  };
  for (const std::string a : {"a", "aa", "aaaa"}) merge(a, a);
  for (const std::string word : {" hello", " world"}) {
    for (size_t i = 1; i < word.size(); ++i) merge(word.substr(0, i), word.substr(i, 1));
  }
  SpecialNames names;
  for (const SpecialRole role : kSpecialRoles) name_of(names, role).clear();
  TokenizerOptions made;
  made.pipeline = Pipeline::kByteLevelBpe;
  made.byte_level = options;
  made.decoding.join = DecodingOptions::Join::kBytes;
  return {Vocabulary(std::move(tokens), names), made, {}, std::move(merges), {}};
}

Tokenizer word_pieces() {
  return {Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "a", "##a", "e", "##e"}), {}};
}

// The peak memory of `call`, without memory in use before.
template <typename Call>
size_t peak_of(Call call) {
  const size_t before = g_held;
  g_peak = before;
  call();
  return g_peak - before;
}

// The steps for a text four times as long are four times as many, but for what does not depend on it.
template <typename Steps>
void expect_linear(Steps steps, size_t bytes = size_t{1} << 17) {
  const int64_t some = steps(bytes), many = steps(4 * bytes);
  EXPECT_GE(some, static_cast<int64_t>(bytes));  // each byte is counted
  EXPECT_LT(many, 5 * some);
}

TEST(LinearSteps, ByteMergesOfOneLongWord) {
  const TokenizerParts parts = byte_level_parts({});
  const BytePairModel model(parts.vocabulary, parts.merges, {});
  for (const std::string_view part : {"a", "ab", " hello world", "ahello"}) {
    expect_linear([&](size_t bytes) {
      BytePairModel::Workspace workspace;
      size_t covered = 0;
      const std::string word = repeated(part, bytes);
      model.cut(word, workspace, [&](const BytePairModel::Piece& piece) {
        covered += piece.length;
        return true;
      });
      EXPECT_EQ(covered, word.size());
      return workspace.steps;
    });
  }
}

int64_t section_steps(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens) matcher.add(token, token.content);
  size_t sections = 0;
  const int64_t steps = for_each_section(
      matcher, text, [&](std::string_view, int32_t, int32_t) { ++sections; }, [&](const FoundToken&) { ++sections; },
      [] { return false; });
  EXPECT_GT(sections, 0U);
  return steps;
}

// A token that the text begins with at every byte, and never ends with.
TEST(LinearSteps, LongAddedTokens) {
  expect_linear([](size_t bytes) {
    const std::string token = std::string(bytes / 4, 'a') + "b";
    return section_steps({{.content = token}}, std::string(bytes, 'a'));
  });
  expect_linear([](size_t bytes) {
    const std::string token = repeated("ab", bytes / 8);
    return section_steps({{.content = token}, {.content = token + "c"}}, repeated("ab", bytes));
  });
}

TEST(LinearSteps, AddedTokensThatTakeWhiteSpace) {
  for (const bool left : {true, false}) {
    for (const std::string_view text : {" ", "\t\n", " a"}) {
      expect_linear([&](size_t bytes) {
        const std::vector<AddedToken> tokens = {{.content = " ", .lstrip = left, .rstrip = !left},
                                                {.content = "\n", .lstrip = left, .rstrip = !left},
                                                {.content = "a", .lstrip = left, .rstrip = !left}};
        return section_steps(tokens, repeated(text, bytes));
      });
    }
  }
}

int64_t byte_level_steps(ByteLevelOptions options, std::vector<AddedToken> tokens, std::string_view text) {
  const TokenizerParts parts = byte_level_parts(options);
  const BytePairModel model(parts.vocabulary, parts.merges, options);
  std::vector<std::string> contents;
  for (AddedToken& token : tokens) {
    token.id = static_cast<int32_t>(contents.size());
    contents.push_back(token.content);
  }
  const Vocabulary vocabulary(contents, parts.vocabulary.special_names());
  const AddedTokens added(tokens, vocabulary, [](std::string_view content) { return std::string(content); });
  Encoding out;
  ByteLevelEncoder encoder(model, options, added, text, std::numeric_limits<size_t>::max(), out);
  encoder.encode();
  EXPECT_GT(out.size(), text.size() / 8);
  return encoder.steps();
}

// Sections that have the rest of the white space in common, each of which is trimmed; "e\u0301" is rewritten.
TEST(LinearSteps, TrimmedWhiteSpaceOfAddedTokens) {
  const ByteLevelOptions options{.nfc = true, .add_prefix_space = true, .trim_offsets = true};
  for (const bool normalized : {true, false}) {
    for (const std::string front : {"x", "e\u0301"}) {
      for (const std::string_view text : {" ", " \t", " \n\t"}) {
        const auto steps = [&](size_t bytes) {
          const std::vector<AddedToken> tokens = {{.content = " ", .rstrip = true, .normalized = normalized},
                                                  {.content = "x", .rstrip = true, .normalized = normalized},
                                                  {.content = "\t", .normalized = normalized}};
          return byte_level_steps(options, tokens, front + repeated(text, bytes));
        };
        expect_linear(steps, size_t{1} << 13);
      }
    }
  }
}

class WordCounter : public WordSink {
 public:
  void take(const Word& word) override { chars += word.chars; }
  int64_t chars = 0;
};

// None is too long to be cut into pieces, so that all of it waits for its end.
TEST(LinearSteps, LongWordsOfBert) {
  for (const std::string part : {"\u00C9", "\u00C9e\u0301", "\u00C9."}) {
    expect_linear([&](size_t bytes) {
      BertSplitter splitter({});
      WordCounter counter;
      splitter.split(repeated(part, 4 * bytes), counter);
      EXPECT_GT(counter.chars, static_cast<int64_t>(bytes));
      return splitter.steps();
    });
  }
}

// What a line of `tokenize` takes: one text in a row of a BatchEncoder. Sets the number of its tokens.
size_t row_memory(const Tokenizer& tokenizer, const std::string& text, size_t& tokens) {
  return peak_of([&] {
    BatchOptions options;
    options.threads = 1;
    BatchEncoder encoder(tokenizer, options);
    const TextPair sample{text};
    const std::span<const Row> rows = encoder.encode({&sample, 1});
    EXPECT_EQ(rows.size(), 1U);
    tokens = rows.front().size();
  });
}

void expect_little_memory(const Tokenizer& tokenizer, std::string_view part) {
  const std::string text = repeated(part, kTextBytes);
  const size_t encoding = peak_of([&] {
    Encoding out;
    tokenizer.encode(text, out);
    EXPECT_GT(out.size(), 0U);
  });
  EXPECT_LT(encoding, (kMaxBytesPerByte - 1) * text.size()) << "encode, " << part;
  size_t tokens = 0;
  EXPECT_LT(row_memory(tokenizer, text, tokens), (kMaxBytesPerByte - 1) * text.size()) << "rows, " << part;
}

TEST(LinearMemory, WordPieces) {
  for (const std::string_view part : {"hello world ", "a", "A", "\u00C9", "hello W\u00F6rld "}) {
    expect_little_memory(word_pieces(), part);
  }
}

TEST(LinearMemory, BytePairs) {
  for (const ByteLevelOptions& options :
       {ByteLevelOptions{}, ByteLevelOptions{.nfc = true, .add_prefix_space = true, .trim_offsets = true}}) {
    const Tokenizer tokenizer(byte_level_parts(options));
    for (const std::string_view part : {" hello world", "a"}) expect_little_memory(tokenizer, part);
  }
  // A few characters that are rewritten, and one byte that is not UTF-8.
  ByteLevelOptions nfc;
  nfc.nfc = true;
  std::string mixed = repeated(" hello world", size_t{1} << 18) + " e\u0301 world hello";
  expect_little_memory(Tokenizer(byte_level_parts(nfc)), mixed);
  expect_little_memory(Tokenizer(byte_level_parts({})), mixed + "\xFF hello");
}

TEST(LinearMemory, OneWordOfTheWholeText) {
  ByteLevelOptions options;
  options.use_regex = false;
  for (const std::string_view part : {" hello world", "a"}) {
    expect_little_memory(Tokenizer(byte_level_parts(options)), part);
  }
}

constexpr size_t kMaxBytesPerToken = 32;                             // where no text is written down
constexpr size_t kMaxBytesPerWrittenByte = 128;                      // of a text that is, its row among them
constexpr size_t kOddBytes = (size_t{1} << 20) + (size_t{1} << 16);  // buffers that double have just done so

TEST(LinearMemory, RowsOfDenseTokens) {
  const Tokenizer byte_pairs(byte_level_parts({}));
  for (const std::string_view part : {".", "a.", "a "}) {
    const std::string text = repeated(part, kOddBytes);
    size_t tokens = 0;
    for (const Tokenizer& tokenizer : {word_pieces(), byte_pairs}) {
      const size_t memory = row_memory(tokenizer, text, tokens);
      EXPECT_LT(memory, kMaxBytesPerToken * tokens) << part;
    }
  }
}

// The added token occurs nowhere.
TEST(LinearMemory, TextsThatAreWrittenDown) {
  const std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "zz"};
  const std::vector<AddedToken> added = {{.content = "zz", .id = 5, .normalized = true}};
  const TokenizerParts normalized{Vocabulary(tokens), TokenizerOptions(), added, {}, {}};
  TokenizerParts legacy{Vocabulary(tokens), TokenizerOptions(), {}, {}, {}};
  legacy.options.pipeline = Pipeline::kBertLegacy;
  TokenizerParts long_words{Vocabulary(tokens), TokenizerOptions(), {}, {}, {}};
  long_words.options.max_word_chars = kOddBytes;
  ByteLevelOptions nfc;
  nfc.nfc = true;
  for (const TokenizerParts& parts : {normalized, legacy, long_words, byte_level_parts(nfc)}) {
    const Tokenizer tokenizer(parts);
    for (const std::string_view part : {"hello world ", "\u00C9", "\u4E2D", "e\u0301 b"}) {
      const std::string text = repeated(part, kOddBytes);
      size_t count = 0;
      EXPECT_LT(row_memory(tokenizer, text, count), kMaxBytesPerWrittenByte * text.size()) << part;
    }
  }
}

// Of a text that is truncated, only the beginning takes memory, in every pipeline.
TEST(LinearMemory, FirstTokensOfLongTexts) {
  constexpr size_t kMaxTokens = 100, kBytes = size_t{1} << 20;
  const std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "zz"};
  std::vector<Tokenizer> tokenizers = {word_pieces()};
  for (const Pipeline pipeline : {Pipeline::kBertLegacy, Pipeline::kRoformer, Pipeline::kWobert}) {
    TokenizerOptions options{.pipeline = pipeline};
    if (pipeline.segments_words()) {
      const TempDir dir;
      options.dictionary = Dictionary::load(dir.write("words.txt", "hello 5\n"), {}, {""});
    }
    tokenizers.emplace_back(Vocabulary(tokens), options);
  }
  const std::vector<AddedToken> added = {{.content = "zz", .id = 5, .normalized = true}};
  tokenizers.emplace_back(TokenizerParts{Vocabulary(tokens), TokenizerOptions(), added, {}, {}});
  ByteLevelOptions no_words;
  no_words.use_regex = false;
  ByteLevelOptions nfc;
  nfc.nfc = true;
  for (const ByteLevelOptions& options : {ByteLevelOptions{}, no_words, nfc}) {
    tokenizers.emplace_back(byte_level_parts(options));
  }
  TokenizerParts byte_level_added = byte_level_parts(nfc);
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
