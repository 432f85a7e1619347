// The fused kernels, by the best instruction set. Forward: some query tiles of one head against all keys. Backward:
// keys of one batch entry, and the query heads that share them.
#pragma once

#include <atomic>
#include <cstdint>

#include "attention/problem.h"
#include "attention/terms.h"

namespace rf::core {

// Queries of a tile with the instruction set in use.
int64_t attention_query_tile();

int64_t attention_forward_bytes(const AttentionProblem& problem);

// Query tiles first .. first + tiles - 1 (at most kForwardGroup) of batch entry b and query head h. The result of a
// tile does not depend on the tiles it is computed with.
void attention_forward_tiles(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t tiles,
                             void* space);

// Keys first .. end - 1 of a key head, whole tiles except the last. Parts of one key head may be computed at the same
// time: the sums that become gradients of queries go through all parts in order, one group of query tiles at a time, so
// they equal the sums of a single part.
struct KeyPart {
  int64_t first, end;
  const std::atomic<int64_t>* before = nullptr;  // finished groups of the previous part; nullptr: this is the first
  std::atomic<int64_t>* done = nullptr;          // finished groups of this part; nullptr: it is the last
  float* sums = nullptr;                         // of queries, over the parts so far; nullptr: there is one part
};

int64_t attention_backward_bytes(const AttentionProblem& problem);
// The size of `sums` in floats: for all queries of one batch entry and key head.
int64_t attention_query_sums(const AttentionProblem& problem);

// A part of batch entry b and key head `key_head`: writes dk and dv of its keys; the last part writes dq of the query
// heads. Adds to grads.key_score, [B,H,S], and to grads.pair_bias; entries and heads that share numbers of pair_bias
// must run in sequence. Gradients of cos and sin are [B,T,H,..] and [B,S,Hk,..]: a row for each head. terms: one entry
// per query head.
void attention_backward_heads(const AttentionProblem& problem, const rf_attention_grads& grads, int64_t b,
                              int64_t key_head, const KeyPart& part, const HeadTermGradients* terms, void* space);

}  // namespace rf::core
