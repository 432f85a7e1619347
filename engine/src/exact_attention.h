// Attention by the float64 loops of core, for scores with a gate, which the tiles of core do not have: in time of
// tokens squared, and a fraction of the speed of the tiles.
#pragma once

#include "rf/attention.h"

namespace rf::engine {

// rf_attention_forward for arguments of float32 or bfloat16 whose sums are formed in float64.
void attend_exactly(const rf_attention_args& args);

}  // namespace rf::engine
