// Shared by the kernels of linear attention for all instruction sets: sizes, the order of tokens, and the kernels'
// interface inside core.
//
// A pass goes through the chunks of a sequence and keeps the sums of earlier chunks, from which it answers the next
// ones. Sums are taken in two steps, within blocks of chunks and then over blocks, so their bits do not depend on the
// number of threads: either one thread goes through all blocks, or each thread sums a block, the sums are added in
// order, and each thread answers a block.
#pragma once

#include <cstdint>

#include "common/arena.h"
#include "rf/linear_attention.h"

namespace rf::core {

inline constexpr int64_t kChunk = 64;        // tokens; about F and Dv, where both ways to sum over keys cost the same
inline constexpr int64_t kBlockChunks = 32;  // enough that adding blocks costs nothing, and few enough to share

// A sequence of tokens: an entry of the batch, or a packed sequence.
struct Sequence {
  int64_t entry = 0;   // of the batch
  int64_t number = 0;  // of its state
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
};

inline int64_t sequence_count(const rf_linear_attention_args& x) {
  return x.cu_seqlens_q == nullptr ? x.batch : x.sequences;
}

inline Sequence sequence_of(const rf_linear_attention_args& x, int64_t number) {
  if (x.cu_seqlens_q == nullptr) return {number, number, 0, x.queries, 0, x.keys};
  const int64_t *q = x.cu_seqlens_q + number, *k = x.cu_seqlens_k + number;
  return {0, number, q[0], q[1] - q[0], k[0], k[1] - k[0]};
}

// Tokens that are taken together. With both, query i and key i of the chunk are at the same place of the sequence.
struct Chunk {
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
  bool paired() const { return queries > 0 && keys > 0; }
};

// Chunks in an order in which a query is answered from the keys of earlier chunks and, if paired, from the keys of its
// chunk up to its place. Causal: queries before every key, keys before every query, pairs. Bidirectional: keys,
// queries.
class ChunkPlan {
 public:
  ChunkPlan(rf_linear_direction direction, const Sequence& sequence);
  int64_t count() const { return count_; }
  Chunk at(int64_t index) const;
  int64_t blocks() const { return (count_ + kBlockChunks - 1) / kBlockChunks; }

 private:
  struct Part {
    int64_t first_query, first_key, tokens;
    bool has_queries, has_keys;
    int64_t chunks() const { return (tokens + kChunk - 1) / kChunk; }
  };
  Part parts_[3];
  int64_t count_ = 0;
};

// kForward and kQueryGradient sum keys and answer queries, kKeyGradient goes through the chunks from the last to the
// first, sums queries and answers keys.
enum class LinearPass { kForward, kQueryGradient, kKeyGradient };

// The chunks of a block, first to last in the order of the pass.
struct Block {
  int64_t first, count, step;
};
Block block_of(const ChunkPlan& plan, LinearPass pass, int64_t index);

struct LinearProblem {
  explicit LinearProblem(const rf_linear_attention_args& x)
      : args(x), width(padded(x.features)), value_width(padded(x.value_dim)), group(x.heads / x.key_heads) {}
  LinearProblem(const LinearProblem&) = delete;
  LinearProblem& operator=(const LinearProblem&) = delete;

  const rf_linear_attention_args& args;
  int64_t width;        // floats of a row of features in work space
  int64_t value_width;  // of a row of v
  int64_t group;        // query heads that share a key head
};

// Numbers that a pass sums: a matrix, S [F][value_width], S^T [Dv][width] or P [F][value_width], and a row [width].
struct SumSizes {
  int64_t matrix, row;
  int64_t both() const { return matrix + row; }
};
SumSizes sum_sizes(const LinearProblem& problem, LinearPass pass);

// Sums at an end of a block: matrix and row, then their rounding errors. With key_exponents they are divided by the
// exponential of a reference that depends only on the place.
struct BorderSums {
  float *sums, *lost;               // [both()]
  float entering = 0, leaving = 0;  // of a block: the references before and behind it
};
// The sums of the state, or 0.
void begin_sums(const LinearProblem& problem, LinearPass pass, int64_t sequence, int64_t key_head,
                const BorderSums& sums);
void keep_state(const LinearProblem& problem, int64_t sequence, int64_t key_head, const BorderSums& sums);

// Blocks of one key head of a sequence and the query heads that read it.
struct LinearTask {
  LinearPass pass;
  int64_t sequence, key_head;
  int64_t first_block, end_block;      // in the order of the pass
  const BorderSums* before = nullptr;  // NULL: the first block is the sequence's
  BorderSums* own = nullptr;           // not NULL: only sums the block, into these, without answers
};
// `space` has the number of bytes that the function of the same name returns.
int64_t linear_forward_bytes(const LinearProblem& problem);
void linear_forward(const LinearProblem& problem, const LinearTask& task, void* space);
int64_t linear_query_gradient_bytes(const LinearProblem& problem);
void linear_query_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, const LinearTask& task,
                           void* space);
int64_t linear_key_gradient_bytes(const LinearProblem& problem);
void linear_key_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, const LinearTask& task,
                         void* space);
// `sums` become the sums after the block.
void add_block(const BorderSums& block, int64_t count, const BorderSums& sums);

}  // namespace rf::core
