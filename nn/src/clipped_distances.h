// Tables of clipped distances. Their rows are for key minus query in the papers, and for query minus key in attention's
// terms, so they are reversed.
#pragma once

#include <ATen/core/Tensor.h>

#include "rf/ops/terms.h"

namespace rf::nn {

inline constexpr int64_t kMaxClip = (int64_t{1} << 23) - 1;

// Row c + clip of each head is for key minus query = c.
inline ops::DistanceTable reversed(const at::Tensor& rows_HCD, int64_t clip) { return {rows_HCD.flip(1), -clip, clip}; }

}  // namespace rf::nn
