// Pairs of texts as rows of a prefix language model: [CLS] first [SEP] second [SEP], the second of type 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rf/data/records.h"
#include "rf/nn/model.h"
#include "rf/text/batch.h"

namespace rf::train {

// The texts of a record, as token rows in both directions: the row of (text, pair), then that of (pair, text).
struct SimilarPair {
  struct Row {
    std::vector<int32_t> ids;
    std::vector<uint8_t> types, starts_word;  // starts_word: 0 for special tokens
  };
  Row rows[2];
};

struct SimilarBatch {
  nn::Input input;      // 2 rows for each pair, padded on the right, with mask and types
  at::Tensor tokens_N;  // int64, flat indices into [B T] of the tokens before the tokens of type 1
  at::Tensor labels_N;  // int64, the tokens of type 1
};

struct SimilarMasking {
  double rows = 0;  // part of the rows whose first text has masked words
  uint64_t seed = 0;
  int64_t epoch = 0;
  const text::Vocabulary* vocabulary = nullptr;
};

// indices: of the pairs; they key the draws of masks. A word of a masked text is chosen with probability 0.15; its
// tokens become [MASK] (80 %), random tokens (10 %) or stay.
SimilarBatch similar_batch(const std::vector<SimilarPair>& pairs, std::span<const int64_t> indices,
                           const SimilarMasking& masking, int64_t pad_id);

}  // namespace rf::train
