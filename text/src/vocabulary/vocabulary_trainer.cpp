// Byte-pair merges over the characters of distinct words. A pair's count changes only in the words that hold it, so
// each merge changes those words alone, and a heap with stale entries gives the next pair: an entry is checked against
// the current count when it reaches the top.
#include "rf/text/vocabulary_trainer.h"

#include <algorithm>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "splitters/legacy_splitter.h"

namespace rf::text {
namespace {

class WordCounter : public WordSink {
 public:
  WordCounter(std::unordered_map<std::string, int64_t>& counts, int max_word_chars)
      : counts_(counts), max_word_chars_(max_word_chars) {}
  void take(const Word& word) override {
    if (word.special != Special::kNone || word.chars > max_word_chars_) return;
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

using WordCounts = std::vector<std::pair<std::string, int64_t>>;

// The characters to keep, in code point order (which is the byte order of UTF-8).
std::vector<std::string> choose_alphabet(const WordCounts& words, int64_t max_alphabet) {
  std::unordered_map<std::string, int64_t> counts;
  for (const auto& [word, count] : words) {
    for (std::string& c : split_chars(word)) counts[std::move(c)] += count;
  }
  WordCounts ranked(counts.begin(), counts.end());
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (ranked.size() > static_cast<size_t>(max_alphabet)) ranked.resize(static_cast<size_t>(max_alphabet));
  std::vector<std::string> alphabet;
  for (auto& [c, count] : ranked) alphabet.push_back(std::move(c));
  std::sort(alphabet.begin(), alphabet.end());
  return alphabet;
}

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

class PairMerger {
 public:
  explicit PairMerger(TokenList& tokens) : tokens_(tokens), heap_(LessFrequent{&tokens}) {}

  void add_word(std::vector<int32_t> pieces, int64_t count) {
    const auto index = static_cast<int32_t>(words_.size());
    for (size_t i = 0; i + 1 < pieces.size(); ++i) change({pieces[i], pieces[i + 1]}, count, index);
    words_.push_back({std::move(pieces), count});
  }

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

 private:
  struct WordPieces {
    std::vector<int32_t> pieces;
    int64_t count;
  };
  struct PairState {
    int64_t count = 0;
    std::vector<int32_t> words;  // that had the pair when its count last rose; some may no longer have it
  };
  struct Entry {
    int64_t count;
    Pair pair;
  };
  struct LessFrequent {  // the heap's top is the most frequent pair; ties go to the first by the pieces' bytes
    const TokenList* tokens;
    bool operator()(const Entry& a, const Entry& b) const {
      if (a.count != b.count) return a.count < b.count;
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
    const int32_t merged = tokens_.add(tokens_[pair.left] + tokens_[pair.right].substr(2));
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
  std::vector<WordPieces> words_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, LessFrequent> heap_;
  std::vector<Pair> grown_;
  std::vector<std::pair<Pair, int64_t>> differences_;  // of the word being merged
};

// The word as characters, those after the first with "##"; empty if one of them is not in the alphabet, because such a
// word will be [UNK] whatever is merged.
std::vector<std::string> to_pieces(const std::string& word, const TokenList& tokens) {
  std::vector<std::string> pieces = split_chars(word);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (tokens.find(pieces[i]) < 0) return {};
    if (i > 0) pieces[i].insert(0, "##");
  }
  return pieces;
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
  LegacySplitter(options_.letter_case).split(text, counter);
}

Vocabulary VocabularyTrainer::train(const std::function<void(int64_t)>& tick) const {
  if (word_counts_.empty()) fail("vocab", "the texts must have at least one word, got none");
  WordCounts words(word_counts_.begin(), word_counts_.end());
  std::sort(words.begin(), words.end());

  TokenList tokens;
  for (const std::string_view token : kSpecialTokens) tokens.add(std::string(token));
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

  PairMerger merger(tokens);
  for (const auto& [word, count] : words) {
    std::vector<int32_t> ids;
    for (const std::string& piece : to_pieces(word, tokens)) ids.push_back(tokens.find(piece));
    if (ids.size() > 1) merger.add_word(std::move(ids), count);
  }
  merger.merge_until(options_.size, options_.min_frequency, tick);
  return Vocabulary(tokens.release());
}

}  // namespace rf::text
