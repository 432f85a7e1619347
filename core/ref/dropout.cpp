// Dropout in plain loops (see the header).

#include "common/reference.h"
#include "convert.h"
#include "rows/philox.h"

namespace rf::ref {

bool keeps(int64_t element, uint32_t threshold, uint64_t seed, uint64_t stream) {
  const uint64_t block = static_cast<uint64_t>(element) / 8;
  const std::array<uint32_t, 4> words =
      core::philox4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                           static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                          {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint32_t word = words[static_cast<size_t>(element % 8) / 2];
  const uint32_t number = element % 2 == 0 ? word & 0xFFFF : word >> 16;
  return number >= threshold;
}

void dropout(rf_dtype dtype, const void* x, void* y, int64_t count, uint32_t threshold, uint64_t seed,
             uint64_t stream) {
  const double scale = 65536.0 / (65536.0 - threshold);
  for (int64_t i = 0; i < count; ++i) {
    store(dtype, y, i, keeps(i, threshold, seed, stream) ? load(dtype, x, i) * scale : 0);
  }
}

}  // namespace rf::ref
