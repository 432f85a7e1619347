#include "segment_pairs.h"

#include <algorithm>
#include <utility>

#include "rf/data/random.h"

namespace rf::data {
namespace {

constexpr uint32_t kMaxDraws = 10;  // of another document
const uint64_t kHalf = threshold(0.5);

// Maps two uniform words to an integer in [0, n).
int64_t scale_to(uint32_t high, uint32_t low, int64_t n) {
  const uint64_t word = uint64_t{high} << 32 | low;
  return static_cast<int64_t>((static_cast<unsigned __int128>(word) * static_cast<uint64_t>(n)) >> 64);
}

// Where the first word at or after `from` begins; `from` if none does before `end`.
size_t word_from(const std::vector<uint8_t>& starts_word, size_t from, size_t end) {
  for (size_t i = from; i < end; ++i) {
    if (starts_word[i] != 0) return i;
  }
  return from;
}

// Where to cut: after `drawn` tokens, at the next word or else at the last one before; [1, size - 1].
size_t cut_at(const std::vector<uint8_t>& starts_word, size_t drawn) {
  const size_t next = word_from(starts_word, drawn, starts_word.size());
  if (starts_word[next] != 0) return next;
  for (size_t i = drawn; i > 1; --i) {
    if (starts_word[i - 1] != 0) return i - 1;
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
  // Up to `count` tokens more, for those of a word that began before.
  const int64_t read = std::min(2 * count, tokens - begin);
  Segment segment{std::vector<int32_t>(static_cast<size_t>(read)), std::vector<uint8_t>(static_cast<size_t>(read))};
  split.copy(document, begin, read, segment.ids.data(), segment.starts_word.data());
  const auto skipped = static_cast<std::ptrdiff_t>(word_from(segment.starts_word, 0, static_cast<size_t>(count)));
  const std::ptrdiff_t end = std::min<std::ptrdiff_t>(skipped + count, read);
  return {{segment.ids.begin() + skipped, segment.ids.begin() + end},
          {segment.starts_word.begin() + skipped, segment.starts_word.begin() + end}};
}

SegmentPair SegmentPairs::at(const Chunks& chunks, int64_t chunk, int64_t epoch) const {
  Segment first, second;
  const auto length = static_cast<size_t>(chunks.place(chunk).count);
  first.ids.resize(length);
  first.starts_word.resize(length);
  chunks.copy(chunk, first.ids.data(), first.starts_word.data());
  const auto begun = static_cast<std::ptrdiff_t>(word_from(first.starts_word, 0, length - 1));
  first.ids.erase(first.ids.begin(), first.ids.begin() + begun);
  first.starts_word.erase(first.starts_word.begin(), first.starts_word.begin() + begun);

  const PhiloxBlock words = draw(seed_, Stream::kPair, 0, epoch, chunk);
  const int64_t drawn = 1 + data::scale_to(words[1], std::ssize(first.ids) - 1);
  const auto cut = static_cast<std::ptrdiff_t>(cut_at(first.starts_word, static_cast<size_t>(drawn)));
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
