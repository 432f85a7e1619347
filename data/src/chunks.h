// The chunks of a split: each document cut into pieces of max_length - 2 tokens (the last one shorter), with
// consecutive numbers in the order of the documents.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
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
    first_.reserve(static_cast<size_t>(split_->documents()) + 1);
    first_.push_back(0);
    for (int64_t document = 0; document < split_->documents(); ++document) {
      const int64_t tokens = split_->document_tokens(document);
      first_.push_back(first_.back() + (tokens + tokens_per_chunk_ - 1) / tokens_per_chunk_);
    }
  }

  const Split& split() const { return *split_; }
  int64_t count() const { return first_.back(); }
  int64_t total_length() const { return split_->tokens() + kChunkSpecials * count(); }

  // Tokens of a chunk with [CLS] and [SEP].
  int64_t length(int64_t chunk) const {
    const Place at = place(chunk);
    return at.count + kChunkSpecials;
  }
  // The tokens between [CLS] and [SEP], length(chunk) - 2 of them.
  void copy(int64_t chunk, int32_t* ids, uint8_t* starts_word) const {
    const Place at = place(chunk);
    split_->copy(at.document, at.begin, at.count, ids, starts_word);
  }

 private:
  struct Place {
    int64_t document, begin, count;
  };
  Place place(int64_t chunk) const {
    const int64_t document = std::upper_bound(first_.begin(), first_.end(), chunk) - first_.begin() - 1;
    const int64_t begin = (chunk - first_[document]) * tokens_per_chunk_;
    return {document, begin, std::min(tokens_per_chunk_, split_->document_tokens(document) - begin)};
  }

  std::shared_ptr<const Split> split_;
  int64_t tokens_per_chunk_;
  std::vector<int64_t> first_;  // chunk of each document, then the number of chunks
};

}  // namespace rf::data
