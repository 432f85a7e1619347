// Two segments of a chunk, for next-sentence prediction and sentence-order prediction (Pairs of batcher.h).
//
// Shards store documents and words but not sentences, so A and B are segments of any length, as in the SEGMENT-PAIR
// format of RoBERTa (Liu et al. 2019, arXiv 1907.11692, section 4.2). A chunk is cut where a word begins, at a place
// drawn uniformly; a partial word at its beginning, which would reveal preceding text, is left out.
//
// kNextSentence: with probability 0.5 B is replaced by as many tokens of another document, which is chosen by a
// uniformly drawn chunk. Up to 10 chunks are drawn until one belongs to another document that is long enough; if all
// fail, the longest other document drawn is used, or the next document. The tokens begin with a word, or, if B ends its
// document, they are the last tokens of theirs. So neither the length of B nor its end reveals the class.
//
// kSentenceOrder: with probability 0.5 A and B are exchanged.
//
// Draws are keyed by (seed, epoch, chunk), so a pair does not depend on the batch or on the reading process:
//   draw(seed, kPair, 0, epoch, chunk): word 0 the class, word 1 the place of the cut
//   draw(seed, kPair, i, epoch, chunk): words 0 and 1 the i-th chunk of another document, words 2 and 3 the start of B
#pragma once

#include <cstdint>
#include <vector>

#include "chunks.h"
#include "rf/data/batcher.h"

namespace rf::data {

struct SegmentPair {
  std::vector<int32_t> ids;          // A [SEP] B
  std::vector<uint8_t> starts_word;  // for each id
  int64_t first_tokens = 0;          // of A
  int64_t label = 0;                 // 1: B is from another document, or the order is exchanged
};

class SegmentPairs {
 public:
  // pairs: not kNone. Throws Error for kNextSentence and a single document.
  SegmentPairs(Pairs pairs, const Chunks& chunks, int32_t sep, uint64_t seed);
  // At most as many tokens as the chunk, plus [SEP].
  SegmentPair at(const Chunks& chunks, int64_t chunk, int64_t epoch) const;

 private:
  struct Segment {
    std::vector<int32_t> ids;
    std::vector<uint8_t> starts_word;
  };
  Segment of_another_document(const Chunks& chunks, int64_t chunk, int64_t epoch, const Segment& second) const;

  Pairs pairs_;
  int32_t sep_;
  uint64_t seed_;
};

}  // namespace rf::data
