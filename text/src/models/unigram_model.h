// The unigram language model of SentencePiece: a word is cut into the tokens whose scores have the largest sum. A
// character that is not a token counts as unknown, with the lowest score less 10; unknown characters that follow each
// other are one token. Sums, comparisons and their order are the same as in `tokenizers`.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/piece_trie.h"
#include "rf/text/tokenizer.h"
#include "splitters/normalizer_chain.h"

namespace rf::text {

class UnigramModel {
 public:
  // Throws Error for a score that is not finite, or without a token for unknown characters.
  UnigramModel(const Vocabulary& vocabulary, const UnigramOptions& options);

  struct Piece {
    int32_t id;
    uint32_t begin, end;  // bytes of the word; the bytes of one unknown part have the same
  };
  // Use one object per thread.
  class Workspace {
   public:
    Workspace() : words_(kWords) {}

   private:
    friend class UnigramModel;
    static constexpr size_t kWords = size_t{1} << 13, kWordBytes = 31, kPieces = 8;
    struct Node {
      double score;
      uint32_t begin;
      int32_t id;  // kNone: not reached
    };
    struct CachedWord {
      uint8_t size = 0, count = 0;  // size 0: empty
      std::array<char, kWordBytes> text;
      std::array<Piece, kPieces> pieces;
    };
    uint64_t serial_ = 0;  // of the model
    std::vector<Node> nodes_;
    std::vector<Piece> pieces_;
    std::vector<CachedWord> words_;
  };
  // The pieces of a word of valid UTF-8; valid until the next call.
  std::span<const Piece> cut(std::string_view word, Workspace& workspace) const;
  const NormalizerChain& normalizers() const { return normalizers_; }

 private:
  static constexpr int32_t kNone = -1;
  void find_best(std::string_view word, Workspace& workspace) const;
  void append(std::string_view word, Piece piece, std::vector<Piece>& pieces) const;

  const PieceTrie trie_;
  const NormalizerChain normalizers_;
  const std::vector<double> scores_;
  const int32_t unk_;
  double unk_score_;
  std::array<int32_t, 256> bytes_;  // the tokens <0xNN>
  bool has_bytes_ = false;
  const uint64_t serial_;
};

}  // namespace rf::text
