// Dropout in plain loops (see the header).
#include "dropout.h"

#include "convert.h"

namespace rf::ref {

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

bool keeps(int64_t element, uint32_t threshold, uint64_t seed, uint64_t stream) {
  const uint64_t block = static_cast<uint64_t>(element) / 8;
  const std::array<uint32_t, 4> words =
      philox4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(stream),
                     static_cast<uint32_t>(stream >> 32)},
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
