// Dropout in the float64 loops, from the definition in rf/dropout.h.
#ifndef RF_CORE_REF_DROPOUT_H_
#define RF_CORE_REF_DROPOUT_H_

#include <cstdint>

namespace rf::ref {

// Whether dropout keeps an element. threshold = round(65536 p).
bool keeps(int64_t element, uint32_t threshold, uint64_t seed, uint64_t stream);

}  // namespace rf::ref
#endif
