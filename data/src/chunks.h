// The chunks of a split: each document cut into pieces of max_length - 2 tokens (the last one shorter), with
// consecutive numbers in the order of the documents.
//
// Of the documents' first chunks every 64th is kept, an eighth of a byte per document; the others are counted from the
// lengths of at most 64 documents, which are read from the shard.
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

inline constexpr int64_t kChunkSpecials = 2;  // [CLS] and [SEP]

class Chunks {
 public:
  Chunks(std::shared_ptr<const Split> split, int64_t max_length)
      : split_(std::move(split)), tokens_per_chunk_(max_length - kChunkSpecials) {
    if (split_->tokens() == 0) {
      fail("batch", "{} must have at least one token, got none (a single document is not divided between the splits)",
           split_->label());
    }
    first_.reserve(static_cast<size_t>(split_->documents() / kStride + 1));
    std::array<int64_t, kStride> lengths;
    for (int64_t document = 0; document < split_->documents(); document += kStride) {
      first_.push_back(count_);
      for (const int64_t tokens : read_lengths(document, lengths)) count_ += chunks_in(tokens);
    }
  }

  const Split& split() const { return *split_; }
  int64_t count() const { return count_; }
  int64_t total_length() const { return split_->tokens() + kChunkSpecials * count_; }

  // Tokens of a chunk with [CLS] and [SEP].
  int64_t length(int64_t chunk) const { return place(chunk).count + kChunkSpecials; }
  // The tokens between [CLS] and [SEP], length(chunk) - 2 of them.
  void copy(int64_t chunk, int32_t* ids, uint8_t* starts_word) const {
    const Place at = place(chunk);
    split_->copy(at.document, at.begin, at.count, ids, starts_word);
  }

 private:
  static constexpr int64_t kStride = 64;
  struct Place {
    int64_t document, begin, count;
  };
  int64_t chunks_in(int64_t tokens) const { return (tokens + tokens_per_chunk_ - 1) / tokens_per_chunk_; }
  std::span<const int64_t> read_lengths(int64_t document, std::array<int64_t, kStride>& lengths) const {
    const auto count = static_cast<size_t>(std::min(kStride, split_->documents() - document));
    split_->document_lengths(document, std::span(lengths).first(count));
    return std::span(lengths).first(count);
  }
  Place place(int64_t chunk) const {
    const int64_t index = std::upper_bound(first_.begin(), first_.end(), chunk) - first_.begin() - 1;
    int64_t document = index * kStride, rest = chunk - first_[static_cast<size_t>(index)];
    std::array<int64_t, kStride> lengths;
    for (const int64_t tokens : read_lengths(document, lengths)) {
      const int64_t begin = rest * tokens_per_chunk_;
      if (begin < tokens) return {document, begin, std::min(tokens_per_chunk_, tokens - begin)};
      rest -= chunks_in(tokens);
      ++document;
    }
    fail("batch", "{} must not change while it is read, got other lengths of its documents", split_->label());
  }

  std::shared_ptr<const Split> split_;
  int64_t tokens_per_chunk_, count_ = 0;
  std::vector<int64_t> first_;  // the number of chunks before every 64th document
};

}  // namespace rf::data
