// Rows of token ids out of a split, and masked-LM targets (spec R-TRN-01), each a function of (seed, epoch, row) alone,
// so that a resumed run sees what an uninterrupted one would, whatever the number of threads.
//
// A document is cut into chunks of at most max_length - 2 tokens, each [CLS] chunk [SEP]. kPadded: a row is one chunk.
// kPacked: a row holds several chunks, each its own segment (attention stays inside a segment, positions restart at 0).
// Rows come in the order of a pseudo-random permutation keyed by (seed, epoch); the last batch of an epoch that is not
// full is completed with the first rows of the next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rf/data/shard.h"
#include "rf/text/vocabulary.h"

namespace rf::data {

enum class Packing { kPadded, kPacked };
enum class MaskUnit { kToken, kWholeWord };

struct MaskOptions {
  double probability = 0.15;       // of the tokens, never [CLS], [SEP], [PAD]
  double mask_fraction = 0.8;      // of the chosen ones: [MASK]
  double random_fraction = 0.1;    // uniform over the vocabulary without special tokens; the rest stays
  MaskUnit unit = MaskUnit::kToken;
};

struct BatchOptions {
  int64_t max_length = 128;
  int64_t batch_size = 32;
  Packing packing = Packing::kPacked;
  MaskOptions mask;
  uint64_t seed = 1;
};

// Row-major [batch_size, length] arrays; length is the longest row's (kPadded) or max_length (kPacked).
struct Batch {
  int64_t batch_size = 0, length = 0;
  std::vector<int64_t> ids;        // [B*T], [PAD] past the end
  std::vector<int32_t> segments;   // [B*T], 0, 1, ... within a row; -1 at padding
  std::vector<int64_t> positions;  // [B*T], restarting at 0 in each segment; 0 at padding
  std::vector<int64_t> masked;     // flat indices b*T + t of the chosen tokens, rising
  std::vector<int64_t> labels;     // their original ids
  int64_t real_tokens = 0;         // tokens that are not padding
};

// Where the next batch starts; part of a checkpoint.
struct BatchCursor {
  int64_t epoch = 0;
  int64_t row = 0;
};

class Batcher {
 public:
  // Throws Error when the split has no token or an option is out of range (max_length < 3, batch_size < 1, ...).
  Batcher(std::shared_ptr<const Split> split, const text::SpecialIds& special, BatchOptions options);
  ~Batcher();
  int64_t rows_per_epoch() const;
  // The batch at the cursor, which moves on past it.
  Batch next(BatchCursor& cursor) const;
  // For evaluation: the rows in order, the last batch shorter; masks keyed by (seed, 0, row). False when done.
  bool next_in_order(int64_t& row, Batch& batch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::data
