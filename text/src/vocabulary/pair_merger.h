// Repeatedly merges the most frequent pair of neighbouring pieces in a list of distinct words (Sennrich et al. 2016,
// arXiv 1508.07909). A merge changes only the words that contain the pair. A heap with stale entries gives the next
// pair: an entry is checked against the current count when it reaches the top.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::text {

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

class PairMerger {
 public:
  // The kind of pieces: how two are joined, and the order of equally frequent pairs.
  enum class Pieces {
    kWordPieces,  // pieces after the first of a word begin with "##"; the pair that is first by its pieces' bytes
    kBytes,       // in the byte alphabet; the pair that is first by its pieces' ids, as in the library `tokenizers`
  };
  PairMerger(TokenList& tokens, Pieces pieces) : tokens_(tokens), kind_(pieces), heap_(LessFrequent{&tokens, pieces}) {}

  void add_word(std::vector<int32_t> pieces, int64_t count);
  // Until there are `size` tokens, or no pair occurs min_frequency times. tick: receives the number of tokens; may be
  // empty.
  void merge_until(int64_t size, int64_t min_frequency, const std::function<void(int64_t)>& tick);
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

  void change(const Pair& pair, int64_t difference, int32_t word);
  void push_grown();
  void merge(const Pair& pair);
  void merge_in_word(const Pair& pair, int32_t merged, int32_t word);
  void note_pairs(const std::vector<int32_t>& pieces, int64_t difference);

  TokenList& tokens_;
  Pieces kind_;
  std::vector<WordPieces> words_;
  std::unordered_map<Pair, PairState, PairHash> pairs_;
  std::priority_queue<Entry, std::vector<Entry>, LessFrequent> heap_;
  std::vector<Pair> grown_;
  std::vector<std::pair<Pair, int64_t>> differences_;  // of the word being merged
  std::vector<Merge> merges_;
};

}  // namespace rf::text
