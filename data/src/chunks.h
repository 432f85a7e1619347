// The chunks of a split: each document is cut into pieces of max_length tokens minus the special tokens (the last piece
// may be shorter), numbered consecutively in document order. A chunk for a pair has at least two tokens; a single
// remaining token at the end of a document is left out.
//
// The index stores the first chunk of every 64th document, an eighth of a byte per document. Other numbers are computed
// from the lengths of at most 64 documents, which are read from the shard.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rf/data/split.h"
#include "rf/io/error.h"

namespace rf::data {

// The number of special tokens of each chunk, and its minimum number of text tokens.
struct ChunkForm {
  int64_t specials, min_tokens;
};
inline constexpr ChunkForm kSingle{2, 1};  // [CLS] chunk [SEP]
inline constexpr ChunkForm kPair{3, 2};    // [CLS] A [SEP] B [SEP]

class Chunks {
 public:
  struct Place {
    int64_t document, begin, count;
  };

  Chunks(std::shared_ptr<const Split> split, int64_t max_length, const ChunkForm& form)
      : split_(std::move(split)), form_(form), tokens_per_chunk_(max_length - form.specials) {
    if (split_->tokens() == 0) {
      fail("batch", "{} must have at least one token, got none (a single document is not divided between the splits)",
           split_->label());
    }
    first_.reserve(static_cast<size_t>(split_->documents() / kStride + 1));
    std::array<int64_t, kStride> lengths;
    for (int64_t document = 0; document < split_->documents(); document += kStride) {
      first_.push_back(count_);
      for (const int64_t tokens : read_lengths(document, lengths)) {
        const int64_t chunks = chunks_in(tokens);
        count_ += chunks;
        total_length_ += std::min(tokens, chunks * tokens_per_chunk_) + chunks * form_.specials;
      }
    }
    if (count_ == 0) {
      fail("batch", "{} must have a document of at least {} tokens to divide into a pair, got none", split_->label(),
           form_.min_tokens);
    }
  }

  const Split& split() const { return *split_; }
  int64_t count() const { return count_; }
  int64_t total_length() const { return total_length_; }

  // Tokens of a chunk, including special tokens.
  int64_t length(int64_t chunk) const { return place(chunk).count + form_.specials; }
  // The tokens of a chunk, without special tokens.
  void copy(int64_t chunk, int32_t* ids, uint8_t* starts_word) const {
    const Place at = place(chunk);
    split_->copy(at.document, at.begin, at.count, ids, starts_word);
  }
  Place place(int64_t chunk) const {
    const int64_t index = std::upper_bound(first_.begin(), first_.end(), chunk) - first_.begin() - 1;
    int64_t document = index * kStride, rest = chunk - first_[static_cast<size_t>(index)];
    std::array<int64_t, kStride> lengths;
    for (const int64_t tokens : read_lengths(document, lengths)) {
      const int64_t begin = rest * tokens_per_chunk_;
      if (begin + form_.min_tokens <= tokens) return {document, begin, std::min(tokens_per_chunk_, tokens - begin)};
      rest -= chunks_in(tokens);
      ++document;
    }
    fail("batch", "{} must not change while it is read, got other lengths of its documents", split_->label());
  }

 private:
  static constexpr int64_t kStride = 64;
  int64_t chunks_in(int64_t tokens) const {
    return (tokens + tokens_per_chunk_ - form_.min_tokens) / tokens_per_chunk_;
  }
  std::span<const int64_t> read_lengths(int64_t document, std::array<int64_t, kStride>& lengths) const {
    const auto count = static_cast<size_t>(std::min(kStride, split_->documents() - document));
    split_->document_lengths(document, std::span(lengths).first(count));
    return std::span(lengths).first(count);
  }

  std::shared_ptr<const Split> split_;
  ChunkForm form_;
  int64_t tokens_per_chunk_, count_ = 0, total_length_ = 0;
  std::vector<int64_t> first_;  // the number of chunks before every 64th document
};

}  // namespace rf::data
