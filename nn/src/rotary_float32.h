// Frequencies of rotary embedding in float32, bit for bit as in transformers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "rf/model/rope_spec.h"

namespace rf::nn {

// float32 [R/2], for a sequence of that many tokens.
at::Tensor float32_frequencies(const RopeSpec& spec, int64_t sequence_length);

}  // namespace rf::nn
