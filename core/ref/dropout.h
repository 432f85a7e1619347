// Dropout in plain loops from the definition in rf/dropout.h, and the generator it draws from.
#ifndef RF_CORE_REF_DROPOUT_H_
#define RF_CORE_REF_DROPOUT_H_

#include <array>

#include "rf/dropout.h"

namespace rf::ref {

// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Whether dropout keeps an element. threshold = round(65536 p).
bool keeps(int64_t element, uint32_t threshold, uint64_t seed, uint64_t stream);

void dropout(rf_dtype dtype, const void* x, void* y, int64_t count, uint32_t threshold, uint64_t seed, uint64_t stream);

}  // namespace rf::ref
#endif
