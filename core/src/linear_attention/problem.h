// What the kernels of linear attention share whatever the instruction set: sizes, the order in which tokens are taken,
// and the kernels' interface inside core.
#ifndef RF_CORE_LINEAR_ATTENTION_PROBLEM_H_
#define RF_CORE_LINEAR_ATTENTION_PROBLEM_H_

#include <cstdint>

#include "common/arena.h"
#include "rf/linear_attention.h"

namespace rf::core {

inline constexpr int64_t kChunk = 64;  // tokens; about F and Dv, where both ways to sum over keys cost the same

// Tokens that are taken together. With both, query i and key i of the chunk are at the same place of the sequence.
struct Chunk {
  int64_t first_query = 0, queries = 0;
  int64_t first_key = 0, keys = 0;
  bool paired() const { return queries > 0 && keys > 0; }
};

// Chunks in an order in which a query is answered from the keys of earlier chunks and, where paired, those of its own
// up to its place. Causal: queries before every key, keys before every query, pairs. Bidirectional: keys, queries.
class ChunkPlan {
 public:
  explicit ChunkPlan(const rf_linear_attention_args& x);
  int64_t count() const { return count_; }
  Chunk at(int64_t index) const;

 private:
  struct Part {
    int64_t first_query, first_key, tokens;
    bool has_queries, has_keys;
    int64_t chunks() const { return (tokens + kChunk - 1) / kChunk; }
  };
  Part parts_[3];
  int64_t count_ = 0;
};

struct LinearProblem {
  explicit LinearProblem(const rf_linear_attention_args& x)
      : args(x), plan(x), width(padded(x.features)), value_width(padded(x.value_dim)), group(x.heads / x.key_heads) {}
  LinearProblem(const LinearProblem&) = delete;
  LinearProblem& operator=(const LinearProblem&) = delete;

  const rf_linear_attention_args& args;
  ChunkPlan plan;
  int64_t width;        // floats of a row of features in work space
  int64_t value_width;  // of a row of v
  int64_t group;        // query heads that share a key head
};

// One key head of one batch entry and the query heads that read it. The backward has two halves that need nothing of
// each other. `space` has as many bytes as the function of the same name says.
int64_t linear_forward_bytes(const LinearProblem& problem);
void linear_forward_head(const LinearProblem& problem, int64_t b, int64_t key_head, void* space);
int64_t linear_query_gradient_bytes(const LinearProblem& problem);
void linear_query_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, int64_t b,
                           int64_t key_head, void* space);
int64_t linear_key_gradient_bytes(const LinearProblem& problem);
void linear_key_gradient(const LinearProblem& problem, const rf_linear_attention_grads& grads, int64_t b,
                         int64_t key_head, void* space);

}  // namespace rf::core
#endif
