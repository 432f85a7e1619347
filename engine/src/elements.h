// Element types of weights and activations, one element at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "rf/io/half.h"

namespace rf::engine {

using io::bf16_of_float;
using io::float_of_bf16;
using io::float_of_half;

// Floats without initial values.
using Floats = std::unique_ptr<float[]>;
inline Floats make_floats(int64_t count) { return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count)); }

}  // namespace rf::engine
