#include "segment_pairs.h"

#include <algorithm>
#include <utility>

#include "rf/data/random.h"

namespace rf::data {
namespace {

constexpr uint32_t kMaxDraws = 10;   // draws of another document
constexpr int64_t kWordTokens = 16;  // range of the search for the start of a word
const uint64_t kHalf = threshold(0.5);

// Maps two uniform words to an integer in [0, n).
int64_t scale_to(uint32_t high, uint32_t low, int64_t n) {
  const uint64_t word = uint64_t{high} << 32 | low;
  return static_cast<int64_t>((static_cast<unsigned __int128>(word) * static_cast<uint64_t>(n)) >> 64);
}

// The start of the first word at or after `drawn`, otherwise of the last one before it, in [low, high), which contains
// `drawn`. Returns `drawn` if no word starts there.
int64_t word_near(const std::vector<uint8_t>& starts_word, int64_t drawn, int64_t low, int64_t high) {
  for (int64_t i = drawn; i < high; ++i) {
    if (starts_word[static_cast<size_t>(i)] != 0) return i;
  }
  for (int64_t i = drawn - 1; i >= low; --i) {
    if (starts_word[static_cast<size_t>(i)] != 0) return i;
  }
  return drawn;
}

}  // namespace

SegmentPairs::SegmentPairs(Pairs pairs, const Chunks& chunks, int32_t sep, uint64_t seed)
    : pairs_(pairs), sep_(sep), seed_(seed) {
  if (pairs == Pairs::kNextSentence && chunks.split().documents() < 2) {
    fail("batch", "{} must have at least two documents for next-sentence prediction, got one", chunks.split().label());
  }
}

SegmentPairs::Segment SegmentPairs::of_another_document(const Chunks& chunks, int64_t chunk, int64_t epoch,
                                                        const Segment& second) const {
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
  const int64_t end = std::min(first + count, std::ssize(segment.ids));
  return {{segment.ids.begin() + first, segment.ids.begin() + end},
          {segment.starts_word.begin() + first, segment.starts_word.begin() + end}};
}

SegmentPair SegmentPairs::at(const Chunks& chunks, int64_t chunk, int64_t epoch) const {
  Segment first, second;
  const auto length = static_cast<size_t>(chunks.place(chunk).count);
  first.ids.resize(length);
  first.starts_word.resize(length);
  chunks.copy(chunk, first.ids.data(), first.starts_word.data());
  const int64_t begun = word_near(first.starts_word, 0, 0, std::ssize(first.ids) - 1);
  first.ids.erase(first.ids.begin(), first.ids.begin() + begun);
  first.starts_word.erase(first.starts_word.begin(), first.starts_word.begin() + begun);

  const PhiloxBlock words = draw(seed_, Stream::kPair, 0, epoch, chunk);
  const int64_t drawn = 1 + data::scale_to(words[1], std::ssize(first.ids) - 1);
  const int64_t cut = word_near(first.starts_word, drawn, 1, std::ssize(first.ids));
  second.ids.assign(first.ids.begin() + cut, first.ids.end());
  second.starts_word.assign(first.starts_word.begin() + cut, first.starts_word.end());
  first.ids.resize(static_cast<size_t>(cut));
  first.starts_word.resize(static_cast<size_t>(cut));

  const bool changed = words[0] < kHalf;
  if (changed && pairs_ == Pairs::kNextSentence) second = of_another_document(chunks, chunk, epoch, second);
  if (changed && pairs_ == Pairs::kSentenceOrder) std::swap(first, second);

  SegmentPair pair{std::move(first.ids), std::move(first.starts_word), 0, changed ? 1 : 0};
  pair.first_tokens = std::ssize(pair.ids);
  pair.ids.push_back(sep_);
  pair.starts_word.push_back(1);
  pair.ids.insert(pair.ids.end(), second.ids.begin(), second.ids.end());
  pair.starts_word.insert(pair.starts_word.end(), second.starts_word.begin(), second.starts_word.end());
  return pair;
}

}  // namespace rf::data
