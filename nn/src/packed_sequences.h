// The two forms of packed sequences, and the conversion between them:
//
//   sequence_ids  [B,S] or [1,S]: a number >= 0 for each token, equal within a sequence of a row; -1: padding, which
//                 neither attends nor is attended to. For rows of models, whose queries are their last T keys
//   cu_seqlens    [sequences + 1]: offsets of sequences that follow each other in one row, for queries and for keys
//                 (rf/ops/terms.h). For the kernels
#pragma once

#include "rf/ops/terms.h"

namespace rf::nn {

// The sequences of all rows, concatenated, on the CPU. Padding has queries without keys, then keys without queries.
// Undefined if a sequence is interrupted by another one: ids must rise in a row. sequence_ids: int64.
ops::CuSeqlens cu_seqlens_of(const at::Tensor& sequence_ids_BS, int64_t queries);

}  // namespace rf::nn
