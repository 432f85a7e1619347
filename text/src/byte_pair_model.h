// Byte pair encoding over bytes: a word begins as its bytes, and the adjacent pair of the lowest rank, of several the
// leftmost, is merged until no pair has a rank (GPT-2, and the BPE model of `tokenizers`). Words that come out as one
// token, nearly all of a real text, are found in one step: which tokens their own bytes merge to is worked out when the
// model is built.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary.h"

namespace rf::text {

class BytePairModel {
 public:
  struct Piece {
    int32_t id;
    uint32_t length;  // bytes
  };
  // What cut() needs besides the model; one object a thread.
  struct Workspace {
    struct Symbol {
      int32_t id;
      uint32_t rank;           // of the pair it makes with the next symbol
      uint32_t begin, end;     // bytes
      int32_t previous, next;  // used for long words
    };
    struct Candidate {
      uint32_t rank;
      int32_t at, left, right;  // the symbol, and the ids of the pair when it was seen
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
  };

  // Merges in order of rank, as tokens of the vocabulary written in the byte alphabet. Throws Error for a vocabulary
  // without all 256 bytes, and for a merge whose parts or result it does not have.
  BytePairModel(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const ByteLevelOptions& options);

  // Replaces `pieces` by those of a word, which is not empty.
  void cut(std::string_view word, std::vector<Piece>& pieces, Workspace& workspace) const;

 private:
  static constexpr uint32_t kNoRank = ~uint32_t{0};
  struct Whole {
    uint64_t hash;           // of the bytes; 0: empty slot
    uint32_t begin, length;  // in bytes_
    int32_t id;
  };
  struct Pair {
    uint64_t key;  // both ids; kNoPair: empty slot
    uint32_t rank;
    int32_t id;  // of the result
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  void read_bytes(const Vocabulary& vocabulary);
  void read_merges(const Vocabulary& vocabulary, const std::vector<Merge>& merges);
  void find_wholes(const Vocabulary& vocabulary, bool ignore_merges);
  const Whole& find_whole(std::string_view word, uint64_t hash) const;
  const Pair& find_pair(int32_t left, int32_t right) const;
  void merge(std::string_view word, Workspace& workspace) const;
  void merge_short(std::vector<Workspace::Symbol>& symbols) const;
  void merge_long(Workspace& workspace) const;
  void push(Workspace& workspace, int32_t at) const;

  int32_t byte_ids_[256];
  std::vector<Whole> wholes_;  // open-addressed, a power of two of slots, as is the next
  std::vector<Pair> pairs_;
  std::string bytes_;  // of the tokens in wholes_
};

}  // namespace rf::text
