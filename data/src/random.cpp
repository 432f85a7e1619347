#include "rf/data/random.h"

#include <bit>
#include <utility>

namespace rf::data {
namespace {

constexpr int kFeistelRounds = 8;

}  // namespace

PhiloxBlock philox4x32(uint64_t key, const PhiloxBlock& counter) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  PhiloxBlock c = counter;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += kWeyl0, k1 += kWeyl1) {
    const uint64_t p0 = kMultiplier0 * c[0], p1 = kMultiplier1 * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
  }
  return c;
}

PhiloxBlock draw(uint64_t seed, Stream stream, uint32_t i, int64_t epoch, int64_t index) {
  const auto high = static_cast<uint32_t>(uint64_t(index) >> 32) & 0xFFFFFF;
  return philox4x32(seed, {i, static_cast<uint32_t>(epoch), static_cast<uint32_t>(index),
                           static_cast<uint32_t>(stream) << 24 | high});
}

Permutation::Permutation(int64_t size, uint64_t seed, Stream stream, int64_t epoch, int64_t index)
    : size_(size), seed_(seed), stream_(stream), epoch_(epoch), index_(index) {
  const int bits = size > 1 ? static_cast<int>(std::bit_width(uint64_t(size - 1))) : 1;
  half_bits_ = (bits + 1) / 2;
}

int64_t Permutation::operator()(int64_t i) const {
  const uint32_t mask = (1u << half_bits_) - 1;
  auto value = static_cast<uint64_t>(i);
  do {
    auto left = static_cast<uint32_t>(value >> half_bits_), right = static_cast<uint32_t>(value) & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      const uint32_t mixed = draw(seed_, stream_, right, epoch_, index_ * kFeistelRounds + round)[0];
      left ^= mixed & mask;
      std::swap(left, right);
    }
    value = uint64_t{left} << half_bits_ | right;
  } while (value >= uint64_t(size_));
  return static_cast<int64_t>(value);
}

}  // namespace rf::data
