// Positions of packed rows whose sequences are known as runs of tokens.
#pragma once

#include "rf/nn/positions.h"

namespace rf::nn {

// make_positions(ids, {}, sequences_BT), where every sequence is one run of a row. ends_N: 0, then where each run of
// equal sequences ends, counted through all rows.
Positions packed_positions(const at::Tensor& ids, const at::Tensor& sequences_BT, const at::Tensor& ends_N);

}  // namespace rf::nn
