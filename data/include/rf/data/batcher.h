// Rows of token ids from a split, and the tokens that a language model predicts (masked ones, spec R-TRN-01, or every
// next one). Both depend only on (seed, epoch, row), so a resumed run sees the same data as an uninterrupted one, with
// any number of threads.
//
// Chunks. A document is cut into chunks of max_length - 2 tokens, the last one shorter; each becomes [CLS] chunk [SEP].
// An epoch contains every chunk once, in a pseudo-random order keyed by (seed, epoch) (random.h). Rows. kPadded: a row
// is one chunk. kPacked: a row holds several chunks, each its own segment (attention stays inside a segment, positions
// restart at 0). The permuted chunks are taken in blocks that fill about 64 rows; each block is packed by first-fit
// decreasing, and its rows are permuted. So a row can be computed by packing one block, without state between calls.
// Little space is wasted: full chunks fill rows, and the tails of documents share rows. Rows are numbered (first chunk
// of the block) + (row in the block): rising, with gaps, below the number of chunks. Masks. The decisions for a token
// come from one Philox draw keyed by (seed, epoch, chunk, token in the chunk), so packing and batching do not change
// them. The only exception is a step without any masks (LeastMasks). If the last batch of an epoch is not full, the
// first rows of the next epoch complete it. Pairs of sentences. With Pairs a chunk has max_length - 3 tokens and
// becomes [CLS] A [SEP] B [SEP], with the types 0 up to the first [SEP] and 1 after it: see Pairs, and segment_pairs.h
// for how a chunk is divided. A pair is one segment of a row.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "rf/data/split.h"
#include "rf/text/vocabulary.h"

namespace rf::data {

// Which tokens are predicted. Special tokens ([CLS], [SEP], [PAD], and [UNK] and [MASK] of the text) are never
// predicted, as in transformers' collator. So [SEP], which ends every chunk, does not contribute to a causal loss
// either.
enum class Objective {
  kMasked,  // chosen tokens, mostly replaced by [MASK]; each is predicted at its own position
  kCausal,  // every token of the text, predicted at the position before it
};
// The special tokens that rows need.
std::initializer_list<text::SpecialRole> required_roles(Objective objective);

// How the two parts of a chunk are related. Classes are as in transformers; 0 is text in its original order.
enum class Pairs {
  kNone,
  kNextSentence,   // BERT (Devlin et al. 2018, arXiv 1810.04805, section 3.1): B follows A (0), or, with probability
                   // 0.5, is part of another document (1)
  kSentenceOrder,  // ALBERT (Lan et al. 2019, arXiv 1909.11942, section 3.1): A and B are consecutive (0), or, with
                   // probability 0.5, exchanged (1)
};

// The names in run files and options.
inline const std::initializer_list<std::pair<const char*, Pairs>> kPairsNames = {
    {"none", Pairs::kNone}, {"next_sentence", Pairs::kNextSentence}, {"sentence_order", Pairs::kSentenceOrder}};

enum class Packing { kPadded, kPacked };
enum class MaskUnit { kToken, kWholeWord };  // kWholeWord: one decision per word of a chunk; replacements by token

struct MaskOptions {
  double probability = 0.15;     // probability that a token (or word) that is not special is chosen, independently;
                                 // above 0
  double mask_fraction = 0.8;    // fraction of the chosen tokens replaced by [MASK]
  double random_fraction = 0.1;  // fraction replaced by a random token that is not special; the rest is unchanged
  MaskUnit unit = MaskUnit::kToken;
  bool operator==(const MaskOptions&) const = default;
};

// If masking chooses no token, the token (or word) with the smallest draw is chosen, so that every step has a
// prediction: among all micro-batches of a step, or among all batches in order (least_in_order), so that the result
// does not depend on the number of micro-batches and ranks.
struct BatchOptions {
  int64_t max_length = 128;
  int64_t batch_size = 32;
  Packing packing = Packing::kPacked;
  Objective objective = Objective::kMasked;
  MaskOptions mask{};  // for kMasked
  uint64_t seed = 1;
  Pairs pairs = Pairs::kNone;  // with kMasked only
};

// Row-major [batch_size, length] arrays; length is the longest row's (kPadded) or max_length (kPacked).
struct Batch {
  int64_t batch_size = 0, length = 0;
  std::vector<int64_t> ids;                       // [B*T], [PAD] past the end
  std::vector<int32_t> segments;                  // [B*T], 0, 1, ... within a row; -1 at padding
  std::vector<int64_t> positions;                 // [B*T], restarting at 0 in each segment; 0 at padding
  int64_t runs = 0;                               // of tokens: segments, and the padding of a row
  std::vector<int64_t> places;                    // flat indices b*T + t of predicted tokens, rising; may be empty
  std::vector<int64_t> labels;                    // the ids to predict there
  std::vector<int64_t> types;                     // [B*T], 0 or 1, with pairs; otherwise empty
  std::vector<int64_t> pair_places, pair_labels;  // for each pair: the flat index of its [CLS], and its class
  int64_t real_tokens = 0;                        // tokens that are not padding
};

// Where the next batch starts; part of a checkpoint. Starts at {0, 0}; next() advances it.
struct BatchCursor {
  int64_t epoch = 0;
  int64_t row = 0;
};

class Batcher {
 public:
  // Throws Error if the split is empty or an option is out of range (max_length < 3, batch_size < 1, ...); with pairs
  // also if every document is shorter than two tokens or, for next sentences, if there is only one document.
  Batcher(std::shared_ptr<const Split> split, const text::SpecialIds& special, BatchOptions options);
  ~Batcher();
  // For epoch numbers and progress. kPadded: exact. kPacked: the number for perfect packing, a few percent below the
  // true one.
  int64_t rows_per_epoch() const;
  // A step of one batch: the batch at the cursor, which then moves to the next one. It predicts nothing only if all
  // tokens are special. Thread-safe (on different cursors).
  Batch next(BatchCursor& cursor) const;
  // The micro-batches of a step with the numbers (0, 1, ...) in `wanted`, in order; the cursor moves past the whole
  // step. Rows and masks equal the rows and masks of one batch of the combined size. Other micro-batches are read only
  // if the wanted ones contain no masked token.
  std::vector<Batch> next_step(BatchCursor& cursor, int64_t micro_batches,
                               const std::function<bool(int64_t)>& wanted) const;
  // For evaluation: every chunk once in the order of the documents, the last batch may be shorter. Masks are drawn as
  // for epoch 0, so the same tokens are chosen for every packing and batch size. `row` starts at 0 and is advanced.
  // Returns false at the end.
  bool next_in_order(int64_t& row, Batch& batch) const;
  // For the first `batches` in order, all without masks: returns the batch with the smallest draw, with its token
  // chosen. It predicts nothing only if all tokens are special.
  Batch least_in_order(int64_t batches) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::data
