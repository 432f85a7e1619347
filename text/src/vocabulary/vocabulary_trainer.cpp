// Counting words and merging their pieces (rf/text/vocabulary_trainer.h).
#include "rf/text/vocabulary_trainer.h"

#include <algorithm>
#include <compare>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "models/byte_alphabet.h"
#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "splitters/gpt2_splitter.h"

namespace rf::text {
namespace {

// The vocabulary as it grows.
class TokenList {
 public:
  int32_t add(const std::string& token) {  // the existing id, if it has one
    const auto [found, added] = ids_.try_emplace(token, static_cast<int32_t>(tokens_.size()));
    if (added) tokens_.push_back(token);
    return found->second;
  }
  int32_t find(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  const std::string& operator[](int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::vector<std::string> release() { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
};

// Repeatedly merges the most frequent pair of neighbouring pieces in a list of distinct words (Sennrich et al. 2016,
// arXiv 1508.07909). A merge changes only the words that contain the pair. A heap with stale entries gives the next
// pair: an entry is checked against the current count when it reaches the top.
class PairMerger {
 public:
  // The kind of pieces: how two are joined, and the order of equally frequent pairs.
  enum class Pieces {
    kWordPieces,  // pieces after the first of a word begin with "##"; the pair that is first by its pieces' bytes
    kBytes,       // in the byte alphabet; the pair that is first by its pieces' ids, as in the library `tokenizers`
  };
  PairMerger(TokenList& tokens, Pieces pieces) : tokens_(tokens), kind_(pieces), heap_(LessFrequent{&tokens, pieces}) {}

  void add_word(const std::vector<std::string>& word, int64_t count) {
    if (word.size() < 2) return;
    std::vector<int32_t> pieces;
    for (const std::string& piece : word) pieces.push_back(tokens_.find(piece));
    const auto index = static_cast<int32_t>(words_.size());
    for (size_t i = 0; i + 1 < pieces.size(); ++i) change({pieces[i], pieces[i + 1]}, count, index);
    words_.push_back({std::move(pieces), count});
  }
  // Until there are `size` tokens, or no pair occurs min_frequency times. tick: receives the number of tokens; may be
  // empty.
  void merge_until(int64_t size, int64_t min_frequency, const std::function<void(int64_t)>& tick) {
    push_grown();
    while (tokens_.size() < size && !heap_.empty()) {
      const Entry top = heap_.top();
      heap_.pop();
      const int64_t count = pairs_[top.pair].count;
      if (count < min_frequency) continue;
      if (count == top.count) {
        merge(top.pair);
        if (tick) tick(tokens_.size());
      } else {
        heap_.push({count, top.pair});
      }
    }
  }
  std::vector<Merge> take_merges() { return std::move(merges_); }  // in their order

 private:
  struct Pair {
    int32_t left, right;
    bool operator==(const Pair&) const = default;
    auto operator<=>(const Pair&) const = default;
  };
  struct PairHash {
    size_t operator()(const Pair& pair) const {
      return std::hash<uint64_t>{}(static_cast<uint64_t>(pair.left) << 32 | static_cast<uint32_t>(pair.right));
    }
  };
  struct WordPieces {
    std::vector<int32_t> pieces;
    int64_t count;
  };
  struct PairState {
    int64_t count = 0;
    std::vector<int32_t> words;  // words with the pair when its count last rose; some may have lost it
  };
  struct Entry {
    int64_t count;
    Pair pair;
  };
  struct LessFrequent {  // the heap's top is the most frequent pair
    const TokenList* tokens;
    Pieces kind;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
      if (kind == Pieces::kBytes) return a.pair > b.pair;
      const int order = (*tokens)[a.pair.left].compare((*tokens)[b.pair.left]);
      return order != 0 ? order > 0 : (*tokens)[a.pair.right] > (*tokens)[b.pair.right];
    }
  };

  void change(const Pair& pair, int64_t difference, int32_t word) {
    PairState& state = pairs_[pair];
    state.count += difference;
    if (difference > 0) {
      state.words.push_back(word);
      grown_.push_back(pair);
    }
  }
  void push_grown() {
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair& pair : grown_) heap_.push({pairs_[pair].count, pair});
    grown_.clear();
  }
  void merge(const Pair& pair) {
    const int32_t merged =
        tokens_.add(tokens_[pair.left] + tokens_[pair.right].substr(kind_ == Pieces::kWordPieces ? 2 : 0));
    merges_.emplace_back(tokens_[pair.left], tokens_[pair.right]);
    const std::vector<int32_t> holders = std::move(pairs_[pair].words);
    for (const int32_t word : holders) merge_in_word(pair, merged, word);
    pairs_.erase(pair);
    push_grown();
  }
  void merge_in_word(const Pair& pair, int32_t merged, int32_t word) {
    auto& [pieces, count] = words_[static_cast<size_t>(word)];
    differences_.clear();
    note_pairs(pieces, -count);
    size_t kept = 0;
    for (size_t i = 0; i < pieces.size(); ++kept) {
      const bool here = i + 1 < pieces.size() && pieces[i] == pair.left && pieces[i + 1] == pair.right;
      pieces[kept] = here ? merged : pieces[i];
      i += here ? 2 : 1;
    }
    if (kept == pieces.size()) return;
    pieces.resize(kept);
    note_pairs(pieces, count);
    std::sort(differences_.begin(), differences_.end());
    for (size_t i = 0; i < differences_.size();) {
      const Pair changed = differences_[i].first;
      int64_t sum = 0;
      for (; i < differences_.size() && differences_[i].first == changed; ++i) sum += differences_[i].second;
      if (sum != 0) change(changed, sum, word);
    }
  }
  void note_pairs(const std::vector<int32_t>& pieces, int64_t difference) {
    for (size_t i = 0; i + 1 < pieces.size(); ++i) differences_.push_back({{pieces[i], pieces[i + 1]}, difference});
  }

  TokenList& tokens_;
  Pieces kind_;
  std::vector<WordPieces> words_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, LessFrequent> heap_;
  std::vector<Pair> grown_;
  std::vector<std::pair<Pair, int64_t>> differences_;  // of the word being merged
  std::vector<Merge> merges_;
};

using WordCounts = std::vector<std::pair<std::string, int64_t>>;

// The words in their order. Throws Error without a word.
WordCounts sorted_words(const std::unordered_map<std::string, int64_t>& counts) {
  if (counts.empty()) fail("vocab", "the texts must have at least one word, got none");
  WordCounts words(counts.begin(), counts.end());
  std::sort(words.begin(), words.end());
  return words;
}

class WordCounter : public WordSink {
 public:
  WordCounter(std::unordered_map<std::string, int64_t>& counts, int max_word_chars)
      : counts_(counts), max_word_chars_(max_word_chars) {}
  void take(const Word& word) override {
    if (word.special || word.chars > max_word_chars_) return;
    key_.assign(word.text);
    ++counts_[key_];
  }

 private:
  std::unordered_map<std::string, int64_t>& counts_;
  const int64_t max_word_chars_;
  std::string key_;
};

std::vector<std::string> split_chars(std::string_view word) {
  std::vector<std::string> chars;
  while (!word.empty()) {
    const auto length = static_cast<size_t>(decode_utf8(word).length);
    chars.emplace_back(word.substr(0, length));
    word.remove_prefix(length);
  }
  return chars;
}

// The characters to keep, in code point order (which is the byte order of UTF-8).
std::vector<std::string> choose_alphabet(const WordCounts& words, int64_t max_alphabet) {
  std::unordered_map<std::string, int64_t> counts;
  for (const auto& [word, count] : words) {
    for (std::string& c : split_chars(word)) counts[std::move(c)] += count;
  }
  WordCounts ranked(counts.begin(), counts.end());
  std::ranges::sort(ranked, {},
                    [](const auto& c) { return std::pair<int64_t, const std::string&>(-c.second, c.first); });
  if (ranked.size() > static_cast<size_t>(max_alphabet)) ranked.resize(static_cast<size_t>(max_alphabet));
  std::vector<std::string> alphabet;
  for (auto& [c, count] : ranked) alphabet.push_back(std::move(c));
  std::sort(alphabet.begin(), alphabet.end());
  return alphabet;
}

// The word as characters, those after the first with "##"; empty if a character is not in the alphabet, because such a
// word will be [UNK] whatever is merged.
std::vector<std::string> to_pieces(const std::string& word, const TokenList& tokens) {
  std::vector<std::string> pieces = split_chars(word);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (tokens.find(pieces[i]) < 0) return {};
    if (i > 0) pieces[i].insert(0, "##");
  }
  return pieces;
}

constexpr const char *kPadToken = "<pad>", *kEndToken = "</s>", *kUnknownToken = "<unk>";

// The letters of all bytes, in the order of their code points.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  for (int byte = 0; byte < 256; ++byte) letters.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  std::sort(letters.begin(), letters.end());
  return letters;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) append_utf8(take_utf8(text).code, valid);
  return valid;
}

}  // namespace

VocabularyTrainer::VocabularyTrainer(VocabularyTrainerOptions options) : options_(options) {
  if (options_.size < 1 || options_.min_frequency < 1 || options_.max_alphabet < 1) {
    fail("vocab", "size, min_frequency and max_alphabet must be at least 1, got {}, {} and {}", options_.size,
         options_.min_frequency, options_.max_alphabet);
  }
}

void VocabularyTrainer::add(std::string_view text) {
  WordCounter counter(word_counts_, TokenizerOptions{}.max_word_chars);
  make_legacy_splitter(options_.letter_case)->split(text, counter);
}

Vocabulary VocabularyTrainer::train(const std::function<void(int64_t)>& tick) const {
  const WordCounts words = sorted_words(word_counts_);

  TokenList tokens;
  const SpecialNames names;
  for (const std::string& token : {names.pad, names.unk, names.cls, names.sep, names.mask}) tokens.add(token);
  for (const std::string& c : choose_alphabet(words, options_.max_alphabet)) tokens.add(c);
  std::set<std::string> continuations;
  for (const auto& [word, count] : words) {
    const std::vector<std::string> pieces = to_pieces(word, tokens);
    if (!pieces.empty()) continuations.insert(pieces.begin() + 1, pieces.end());
  }
  for (const std::string& c : continuations) tokens.add(c);
  if (tokens.size() > options_.size) {
    fail("vocab", "size must be at least {} for the special tokens and the characters, got {}; lower max_alphabet ({})",
         tokens.size(), options_.size, options_.max_alphabet);
  }

  PairMerger merger(tokens, PairMerger::Pieces::kWordPieces);
  for (const auto& [word, count] : words) merger.add_word(to_pieces(word, tokens), count);
  merger.merge_until(options_.size, options_.min_frequency, tick);
  return Vocabulary(tokens.release());
}

BytePairTrainer::BytePairTrainer(BytePairTrainerOptions options) : options_(options) {
  if (options_.size < 1 || options_.min_frequency < 1) {
    fail("vocab", "size and min_frequency must be at least 1, got {} and {}", options_.size, options_.min_frequency);
  }
}

void BytePairTrainer::add(std::string_view given) {
  const std::string text = valid_utf8(given);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = next_gpt2_word(text, begin).end;
    ++word_counts_[text.substr(begin, end - begin)];
    begin = end;
  }
}

Tokenizer BytePairTrainer::train(const std::function<void(int64_t)>& tick) const {
  const WordCounts words = sorted_words(word_counts_);
  TokenList tokens;
  for (const char* special : {kPadToken, kEndToken, kUnknownToken}) tokens.add(special);
  for (const std::string& letter : byte_letters()) tokens.add(letter);
  if (tokens.size() > options_.size) {
    fail("vocab", "size must be at least {} for the special tokens and the bytes, got {}", tokens.size(),
         options_.size);
  }
  PairMerger merger(tokens, PairMerger::Pieces::kBytes);
  for (const auto& [word, count] : words) merger.add_word(split_chars(letters_of(word)), count);
  merger.merge_until(options_.size, options_.min_frequency, tick);

  SpecialNames names = kNoSpecialNames;
  names.pad = kPadToken;
  names.unk = kUnknownToken;
  names.eos = kEndToken;
  Vocabulary vocabulary(tokens.release(), names);
  const int32_t end = vocabulary.special().eos;
  using Part = SequenceTemplate::Part;
  const SequenceTemplate ended{.single = {{Part::kFirst}, {Part::kSpecial, end}}, .pair = {}};
  TokenizerParts parts{.vocabulary = std::move(vocabulary), .options = {}, .added = {}, .merges = merger.take_merges()};
  parts.options.pipeline = Pipeline::kByteLevelBpe;
  parts.options.decoding.join = DecodingOptions::Join::kBytes;
  parts.sequence_template = ended;
  return Tokenizer(std::move(parts));
}

}  // namespace rf::text
