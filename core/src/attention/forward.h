// The fused forward, by the best instruction set: some query tiles of one head against all keys.
#ifndef RF_CORE_ATTENTION_FORWARD_H_
#define RF_CORE_ATTENTION_FORWARD_H_

#include <cstdint>

#include "attention/problem.h"

namespace rf::core {

// Queries of a tile with the instruction set in use.
int64_t attention_query_tile();

int64_t attention_forward_bytes(const AttentionProblem& problem);

// Query tiles first .. first + tiles - 1 (at most kForwardGroup) of batch entry b and query head h. The result of a
// tile does not depend on the tiles it is computed with.
void attention_forward_tiles(const AttentionProblem& problem, int64_t b, int64_t h, int64_t first, int64_t tiles,
                             void* space);

}  // namespace rf::core
#endif
