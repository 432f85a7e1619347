// Merging of pairs (pair_merger.h).
#include "vocabulary/pair_merger.h"

#include <algorithm>

namespace rf::text {

void PairMerger::add_word(std::vector<int32_t> pieces, int64_t count) {
  const auto index = static_cast<int32_t>(words_.size());
  for (size_t i = 0; i + 1 < pieces.size(); ++i) change({pieces[i], pieces[i + 1]}, count, index);
  words_.push_back({std::move(pieces), count});
}

void PairMerger::merge_until(int64_t size, int64_t min_frequency, const std::function<void(int64_t)>& tick) {
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

void PairMerger::change(const Pair& pair, int64_t difference, int32_t word) {
  PairState& state = pairs_[pair];
  state.count += difference;
  if (difference > 0) {
    state.words.push_back(word);
    grown_.push_back(pair);
  }
}

void PairMerger::push_grown() {
  std::sort(grown_.begin(), grown_.end());
  grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
  for (const Pair& pair : grown_) heap_.push({pairs_[pair].count, pair});
  grown_.clear();
}

void PairMerger::merge(const Pair& pair) {
  const int32_t merged =
      tokens_.add(tokens_[pair.left] + tokens_[pair.right].substr(kind_ == Pieces::kWordPieces ? 2 : 0));
  merges_.emplace_back(tokens_[pair.left], tokens_[pair.right]);
  const std::vector<int32_t> holders = std::move(pairs_[pair].words);
  for (const int32_t word : holders) merge_in_word(pair, merged, word);
  pairs_.erase(pair);
  push_grown();
}

void PairMerger::merge_in_word(const Pair& pair, int32_t merged, int32_t word) {
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

void PairMerger::note_pairs(const std::vector<int32_t>& pieces, int64_t difference) {
  for (size_t i = 0; i + 1 < pieces.size(); ++i) differences_.push_back({{pieces[i], pieces[i + 1]}, difference});
}

}  // namespace rf::text
