// Counter-based random numbers: a value depends only on (seed, stream, coordinates). So a checkpoint does not store the
// state of a generator, order and threads do not matter, and results are equal on every machine (unlike the
// distributions of <random>). Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace rf::data {

using PhiloxBlock = std::array<uint32_t, 4>;
PhiloxBlock philox4x32(uint64_t key, const PhiloxBlock& counter);

// The purpose of a draw; part of the counter.
enum class Stream : uint32_t { kMask = 1, kChunkOrder, kRowOrder, kSplit, kExampleOrder, kSyntheticRows, kPair };

// Four independent uniform 32-bit words for the coordinates (i, epoch, index): Philox with key = seed and
// counter = {i, epoch, low 32 bits of index, stream in the top 8 bits and bits 32..55 of index below}.
PhiloxBlock draw(uint64_t seed, Stream stream, uint32_t i, int64_t epoch, int64_t index);

// Maps a uniform word to an integer in [0, n), n <= 2^32 (relative deviation from uniform at most n / 2^32).
inline int64_t scale_to(uint32_t word, int64_t n) { return static_cast<int64_t>((uint64_t{word} * uint64_t(n)) >> 32); }
// `uniform word < threshold(p)` is true with probability p, to 2^-32.
inline uint64_t threshold(double probability) { return static_cast<uint64_t>(probability * 4294967296.0); }

// A pseudo-random permutation of 0 ... size - 1 without a table: an 8-round Feistel network over the next even number
// of bits, with `draw` as its round function. It is applied again to values outside the range (at most 4 times on
// average).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, Stream stream, int64_t epoch, int64_t index = 0);
  int64_t operator()(int64_t i) const;

 private:
  int64_t size_;
  uint64_t seed_;
  Stream stream_;
  int64_t epoch_, index_;
  int half_bits_;
};

}  // namespace rf::data
