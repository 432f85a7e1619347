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

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "chunks.h"
#include "rf/data/batcher.h"
#include "rf/data/random.h"

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
  SegmentPairs(Pairs pairs, const Chunks& chunks, int32_t sep, uint64_t seed) : pairs_(pairs), sep_(sep), seed_(seed) {
    if (pairs == Pairs::kNextSentence && chunks.split().documents() < 2) {
      fail("batch", "{} must have at least two documents for next-sentence prediction, got one",
           chunks.split().label());
    }
  }
  // At most as many tokens as the chunk, plus [SEP].
  SegmentPair at(const Chunks& chunks, int64_t chunk, int64_t epoch) const {
    const auto length = static_cast<size_t>(chunks.place(chunk).count);
    Segment text{std::vector<int32_t>(length), std::vector<uint8_t>(length)};
    chunks.copy(chunk, text.ids.data(), text.starts_word.data());
    const int64_t size = std::ssize(text.ids), begun = word_near(text.starts_word, 0, 0, size - 1);
    const PhiloxBlock words = draw(seed_, Stream::kPair, 0, epoch, chunk);
    const int64_t drawn = begun + 1 + data::scale_to(words[1], size - begun - 1);
    const int64_t cut = word_near(text.starts_word, drawn, begun + 1, size);
    Segment first = text.part(begun, cut), second = text.part(cut, size);

    const bool changed = words[0] < threshold(0.5);
    if (changed && pairs_ == Pairs::kNextSentence) second = of_another_document(chunks, chunk, epoch, second);
    if (changed && pairs_ == Pairs::kSentenceOrder) std::swap(first, second);

    const int64_t first_tokens = std::ssize(first.ids);
    SegmentPair pair{std::move(first.ids), std::move(first.starts_word), first_tokens, changed ? 1 : 0};
    pair.ids.push_back(sep_);
    pair.starts_word.push_back(1);
    pair.ids.insert(pair.ids.end(), second.ids.begin(), second.ids.end());
    pair.starts_word.insert(pair.starts_word.end(), second.starts_word.begin(), second.starts_word.end());
    return pair;
  }

 private:
  struct Segment {
    std::vector<int32_t> ids;
    std::vector<uint8_t> starts_word;

    Segment part(int64_t begin, int64_t end) const {
      return {{ids.begin() + begin, ids.begin() + end}, {starts_word.begin() + begin, starts_word.begin() + end}};
    }
  };

  static constexpr uint32_t kMaxDraws = 10;   // draws of another document
  static constexpr int64_t kWordTokens = 16;  // range of the search for the start of a word

  // Maps two uniform words to an integer in [0, n).
  static int64_t scale_to(uint32_t high, uint32_t low, int64_t n) {
    const uint64_t word = uint64_t{high} << 32 | low;
    return static_cast<int64_t>((static_cast<unsigned __int128>(word) * static_cast<uint64_t>(n)) >> 64);
  }
  // The start of the first word at or after `drawn`, otherwise of the last one before it, in [low, high), which
  // contains `drawn`. Returns `drawn` if no word starts there.
  static int64_t word_near(const std::vector<uint8_t>& starts_word, int64_t drawn, int64_t low, int64_t high) {
    for (int64_t i = drawn; i < high; ++i) {
      if (starts_word[static_cast<size_t>(i)] != 0) return i;
    }
    for (int64_t i = drawn - 1; i >= low; --i) {
      if (starts_word[static_cast<size_t>(i)] != 0) return i;
    }
    return drawn;
  }
  Segment of_another_document(const Chunks& chunks, int64_t chunk, int64_t epoch, const Segment& second) const {
    const Split& split = chunks.split();
    const Chunks::Place own = chunks.place(chunk);
    const int64_t wanted = std::ssize(second.ids);
    int64_t document = (own.document + 1) % split.documents(), tokens = 0;
    PhiloxBlock words{};
    for (uint32_t i = 1; i <= kMaxDraws && tokens < wanted; ++i) {
      words = draw(seed_, Stream::kPair, i, epoch, chunk);
      const int64_t drawn = chunks.place(scale_to(words[0], words[1], chunks.count())).document;
      if (drawn == own.document || split.document_tokens(drawn) <= tokens) continue;
      document = drawn;
      tokens = split.document_tokens(drawn);
    }
    tokens = split.document_tokens(document);
    const int64_t count = std::min(wanted, tokens);
    const bool ends_document = own.begin + own.count == split.document_tokens(own.document);
    const int64_t begin = ends_document ? tokens - count : scale_to(words[2], words[3], tokens - count + 1);
    const int64_t low = std::max<int64_t>(begin - kWordTokens, 0);
    const auto read = static_cast<size_t>(std::min(begin + count + kWordTokens, tokens) - low);
    Segment segment{std::vector<int32_t>(read), std::vector<uint8_t>(read)};
    split.copy(document, low, std::ssize(segment.ids), segment.ids.data(), segment.starts_word.data());
    const int64_t first = word_near(segment.starts_word, begin - low, 0, std::ssize(segment.ids));
    return segment.part(first, std::min(first + count, std::ssize(segment.ids)));
  }

  Pairs pairs_;
  int32_t sep_;
  uint64_t seed_;
};

}  // namespace rf::data
