// Rows of token ids from a split, and the tokens that a language model predicts (masked ones, spec R-TRN-01, or every
// next one). Both are functions of (seed, epoch, row) alone, so that a resumed run sees the same as an uninterrupted
// one, with any number of threads.
//
// Chunks. A document is cut into chunks of max_length - 2 tokens, the last one shorter; each becomes [CLS] chunk [SEP].
// An epoch has every chunk once, in the order of a pseudo-random permutation keyed by (seed, epoch) (random.h).
// Rows. kPadded: a row is one chunk. kPacked: a row holds several chunks, each its own segment (attention stays inside
// a segment, positions restart at 0). The permuted chunks are taken in blocks that fill about 64 rows; each block is
// packed by first-fit decreasing, and its rows are permuted. So a row is computed by packing one block, no state is
// kept between calls, and little is wasted: full chunks fill rows, and the tails of documents share rows. Rows are
// numbered (first chunk of the block) + (row in the block): rising, with gaps, below the number of chunks. Masks. The
// decisions for a token are one Philox draw keyed by (seed, epoch, chunk, token in the chunk), hence the same however
// the chunks are packed and batched. Only a step without any masks depends on more than its chunks (LeastMasks). The
// last batch of an epoch that is not full is completed with the first rows of the next. Pairs of sentences. With Pairs
// a chunk has max_length - 3 tokens and becomes [CLS] A [SEP] B [SEP], with the types 0 up to the first [SEP] and 1
// after it: see Pairs, and segment_pairs.h for how a chunk is divided. A pair is one segment of a row.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rf/data/split.h"
#include "rf/text/vocabulary.h"

namespace rf::data {

// Which tokens are predicted. Special tokens ([CLS], [SEP], [PAD], and [UNK] and [MASK] of the text) never are, as in
// transformers' collator; so [SEP], which stands wherever a chunk was cut, is not part of a causal loss either.
enum class Objective {
  kMasked,  // tokens that were chosen and, most of them, masked, each at its own position
  kCausal,  // every token of the text, at the position before it
};
// The special tokens that rows need.
std::initializer_list<text::SpecialRole> required_roles(Objective objective);

// What the two parts of a chunk are to each other; the classes are transformers', 0 for text as it was written.
enum class Pairs {
  kNone,
  kNextSentence,   // BERT (Devlin et al. 2018, arXiv 1810.04805, section 3.1): B is what follows A (0), or, with
                   // probability 0.5, part of another document (1)
  kSentenceOrder,  // ALBERT (Lan et al. 2019, arXiv 1909.11942, section 3.1): A and B are consecutive (0), or, with
                   // probability 0.5, exchanged (1)
};

// The names in run files and options.
inline const std::initializer_list<std::pair<const char*, Pairs>> kPairsNames = {
    {"none", Pairs::kNone}, {"next_sentence", Pairs::kNextSentence}, {"sentence_order", Pairs::kSentenceOrder}};

enum class Packing { kPadded, kPacked };
enum class MaskUnit { kToken, kWholeWord };  // kWholeWord: one decision per word of a chunk; replacements by token

struct MaskOptions {
  double probability = 0.15;     // of each token (or word) that is not special, independently; above 0
  double mask_fraction = 0.8;    // part of the chosen tokens that becomes [MASK]
  double random_fraction = 0.1;  // part that becomes a random token that is not special; the rest is unchanged
  MaskUnit unit = MaskUnit::kToken;
  bool operator==(const MaskOptions&) const = default;
};

// Where masking chooses no token, the token (or word) with the smallest draw is taken, so that there is something to
// predict. kInStep: of all micro-batches of a step, and in order of all batches (least_in_order), so that the number of
// micro-batches and of ranks changes nothing. kInBatch: of every batch, as in runs that an earlier version began.
enum class LeastMasks { kInStep, kInBatch };

struct BatchOptions {
  int64_t max_length = 128;
  int64_t batch_size = 32;
  Packing packing = Packing::kPacked;
  Objective objective = Objective::kMasked;
  MaskOptions mask{};  // of kMasked
  uint64_t seed = 1;
  Pairs pairs = Pairs::kNone;  // with kMasked only
  LeastMasks least = LeastMasks::kInStep;
};

// Row-major [batch_size, length] arrays; length is the longest row's (kPadded) or max_length (kPacked).
struct Batch {
  int64_t batch_size = 0, length = 0;
  std::vector<int64_t> ids;        // [B*T], [PAD] past the end
  std::vector<int32_t> segments;   // [B*T], 0, 1, ... within a row; -1 at padding
  std::vector<int64_t> positions;  // [B*T], restarting at 0 in each segment; 0 at padding
  // 0, then where each run of tokens ends, counted through all rows: those of a segment, or the padding of a row.
  std::vector<int64_t> ends = {0};
  std::vector<int64_t> places;  // flat indices b*T + t where a token is predicted, rising; may be empty
  std::vector<int64_t> labels;  // the ids to predict there
  std::vector<int64_t> types;   // [B*T], 0 or 1, with pairs; otherwise empty
  std::vector<int64_t> pair_places, pair_labels;  // of each pair: the flat index of its [CLS], and its class
  int64_t real_tokens = 0;                        // tokens that are not padding
};

// Where the next batch starts; part of a checkpoint. Start at {0, 0}; otherwise what next() left.
struct BatchCursor {
  int64_t epoch = 0;
  int64_t row = 0;
};

class Batcher {
 public:
  // Throws Error when the split has no token or an option is out of range (max_length < 3, batch_size < 1, ...); with
  // pairs also when no document has two tokens or, for next sentences, when there is only one document.
  Batcher(std::shared_ptr<const Split> split, const text::SpecialIds& special, BatchOptions options);
  ~Batcher();
  // For epoch numbers and progress. kPadded: exact. kPacked: the number that perfect packing would need, a few percent
  // below the true one.
  int64_t rows_per_epoch() const;
  // A step of one batch: that at the cursor, which is moved to the next one. Without a token to predict only if all are
  // special. Thread-safe (on different cursors).
  Batch next(BatchCursor& cursor) const;
  // The micro-batches of a step whose numbers (0, 1, ...) are wanted, in order; the cursor is moved past all of them.
  // Their rows and masks are those of one batch that is as many times larger. Those that are not wanted are read only
  // where the wanted ones have no masks.
  std::vector<Batch> next_step(BatchCursor& cursor, int64_t micro_batches,
                               const std::function<bool(int64_t)>& wanted) const;
  // For evaluation: every chunk once in the order of the documents, the last batch shorter. The masks are those of
  // epoch 0, so the same tokens are chosen for every packing and batch size. `row` starts at 0 and is advanced. False
  // at the end.
  bool next_in_order(int64_t& row, Batch& batch) const;
  // Of the first `batches` in order, which have no masks, the one with the smallest draw, and its token chosen. Without
  // a token to predict if all are special.
  Batch least_in_order(int64_t batches) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::data
