// One vector from the hidden states of a sequence.
#pragma once

#include <cstdint>

#include "rf/engine/model.h"
#include "rf/status.h"

namespace rf::engine {

// x: [tokens, width]; attend: [tokens] or nullptr; out: [width]. Not for Pooling::kPooler. Sums are in double, in order
// of the tokens. A sequence without a token that is attended to gives zeros, or its first token with kCls and kLast.
void pool_sequence(Pooling pooling, rf_dtype dtype, const void* x, int64_t tokens, int64_t width, const uint8_t* attend,
                   float* out);

}  // namespace rf::engine
