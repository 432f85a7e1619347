// Byte pair encoding: a word begins as its bytes, or as its characters (those without a token as their bytes <0xNN>, or
// as the unk_token), and the leftmost adjacent pair of the lowest rank is
// merged until no pair has a rank (GPT-2, and the BPE model of `tokenizers`). Words that become one token (most words
// of real text) are looked up in one step: for each token, the result of merging its bytes is computed when the model
// is built.
//
// A long word is split window by window, so memory does not grow with it. This is exact: a sequence of tokens is the
// result of merging if and only if each token, and each two neighbours, are the result of merging their bytes, because
// the first merge across a border would also happen in the two neighbours alone. So if two overlapping windows share a
// token, the word's tokens are the first window's tokens up to it, followed by the second window's tokens after it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rf/io/utf8.h"
#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary.h"

namespace rf::text {

inline constexpr std::string_view kSpaceMarker = "\u2581";  // "▁"

class BytePairModel {
 public:
  struct Piece {
    int32_t id;       // -1: a byte without a token
    uint32_t length;  // bytes
    bool operator==(const Piece&) const = default;
  };
  // Buffers of cut(); use one object per thread.
  struct Workspace {
    struct Symbol {
      int32_t id;
      uint32_t rank;           // of the pair with the next symbol
      uint32_t begin, end;     // bytes
      int32_t previous, next;  // used for long words
    };
    struct Candidate {
      uint32_t rank;
      int32_t at, left, right;  // the symbol, and the ids of the pair when it was seen
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> queue;
    std::vector<Piece> pieces, ahead;  // of a window and of the next one
    // Words of several pieces, by their hash; empty until the first one.
    static constexpr size_t kWords = size_t{1} << 12, kWordBytes = 30, kPieces = 8;
    struct KnownWord {
      uint8_t size = 0, count = 0;  // size 0: empty
      std::array<char, kWordBytes> text;
      std::array<Piece, kPieces> pieces;
    };
    uint64_t serial = 0;  // of the model whose words they are
    std::vector<KnownWord> words;
  };

  // Merges in order of rank, as tokens of the vocabulary, which kByteLevelBpe writes in the byte alphabet. Throws Error
  // for a vocabulary without all 256 bytes (except, in kByteLevelBpe, bytes that hardly occur in text), and for a merge
  // whose parts or result it lacks.
  BytePairModel(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const TokenizerOptions& options);

  int32_t unknown() const { return unknown_; }  // the unk_token; -2: no character needs it
  // Whether no merge makes a token with a "▁" after another character.
  bool joins_no_markers() const { return joins_no_markers_; }

  // Calls take(piece) for each piece of a word, which is not empty, in order, until it returns false.
  template <typename Take>
  void cut(std::string_view word, Workspace& workspace, Take take) const {
    const uint64_t hash = hash_of(word);
    if (const Whole& whole = find_whole(word, hash); whole.id >= 0) {
      static_cast<void>(take(Piece{whole.id, whole.length}));
      return;
    }
    if (word.size() <= Workspace::kWordBytes) {
      for (const Piece& piece : cut_short(word, hash, workspace)) {
        if (!take(piece)) return;
      }
      return;
    }
    size_t begin = 0, length = window_end(word, kWindow);
    merge_window(word.substr(0, length), workspace.pieces, workspace);
    while (begin + length < word.size()) {
      const size_t given = next_window(word, begin, length, workspace);
      for (size_t i = 0; i < given; ++i) {
        if (!take(workspace.pieces[i])) return;
      }
      if (given > 0) std::swap(workspace.pieces, workspace.ahead);
    }
    for (const Piece& piece : workspace.pieces) {
      if (!take(piece)) return;
    }
  }

  static constexpr size_t kWindow = size_t{1} << 15;  // bytes

 private:
  static constexpr size_t kOverlap = size_t{1} << 10;  // of two windows, at least
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
  void read_characters(const Vocabulary& vocabulary, bool byte_fallback);
  void read_merges(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool fuses_unknown);
  void compute_wholes(const Vocabulary& vocabulary, bool ignore_merges);
  static uint64_t hash_of(std::string_view word);
  // The pieces of a word of at most kWordBytes; valid until the next call.
  std::span<const Piece> cut_short(std::string_view word, uint64_t hash, Workspace& workspace) const;
  const Whole& find_whole(std::string_view word, uint64_t hash) const;
  void merge_window(std::string_view window, std::vector<Piece>& pieces, Workspace& workspace) const;
  // Continues after the window of `length` bytes at `begin`, whose pieces are workspace.pieces: puts the next window's
  // pieces after the first common token into workspace.ahead, makes it the current window, and returns the number of
  // pieces of the old window before that token. 0: without a common token, the window was doubled.
  size_t next_window(std::string_view word, size_t& begin, size_t& length, Workspace& workspace) const;
  const Pair& find_pair(int32_t left, int32_t right) const;
  // The end of a window there, after a whole character.
  size_t window_end(std::string_view word, size_t end) const {
    end = std::min(end, word.size());
    while (characters_ && end < word.size() && !begins_character(word[end])) ++end;
    return end;
  }
  void merge(std::string_view word, Workspace& workspace) const;
  void append_characters(std::string_view word, std::vector<Workspace::Symbol>& symbols) const;
  void merge_short(std::vector<Workspace::Symbol>& symbols) const;
  void merge_long(Workspace& workspace) const;
  void push(Workspace& workspace, int32_t at) const;

  int32_t byte_ids_[256];  // -1: no token
  bool characters_ = false, joins_no_markers_ = true;
  int32_t unknown_ = -2;
  std::unordered_map<char32_t, int32_t> character_ids_;
  std::vector<Whole> wholes_;  // open-addressed, a power of two of slots, as is the next
  std::vector<Pair> pairs_;
  std::string bytes_;  // of the tokens in wholes_
  const uint64_t serial_;
};

}  // namespace rf::text
