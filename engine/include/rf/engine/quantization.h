// Vectors with one byte or one bit for each element, as sentence-transformers' quantize_embeddings makes them:
//   int8, uint8: floor((x - low) / ((high - low) / 255)) within 0 .. 255, minus 128 for int8. low and high are the
//   least and greatest values of the element over all vectors, unless given.
//   ubinary: a bit per element, 1 if x > 0, eight to a byte, the first in the highest bit; binary: the byte minus 128.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rf/engine/model.h"

namespace rf::engine {

enum class Quantization { kNone, kInt8, kUint8, kBinary, kUbinary };

inline bool is_signed(Quantization kind) { return kind == Quantization::kInt8 || kind == Quantization::kBinary; }
inline bool needs_ranges(Quantization kind) { return kind == Quantization::kInt8 || kind == Quantization::kUint8; }

// Bytes of a quantized vector of `dimensions` elements.
RF_ENGINE_API int64_t quantized_size(Quantization kind, int64_t dimensions);

// The least and the greatest value of each element.
class RF_ENGINE_API ElementRanges {
 public:
  ElementRanges() = default;
  // Throws Error for sizes that differ and a range that is empty or not finite.
  ElementRanges(std::vector<float> low, std::vector<float> high);
  void add(std::span<const float> vector);
  bool empty() const { return low_.empty(); }

 private:
  friend class Quantizer;
  std::vector<float> low_, high_;
};

class RF_ENGINE_API Quantizer {
 public:
  // ranges: of int8 and uint8.
  Quantizer(Quantization kind, const ElementRanges& ranges);
  // out: quantized_size() bytes, of int8 or uint8.
  void operator()(std::span<const float> vector, std::byte* out) const;

 private:
  Quantization kind_;
  std::vector<float> starts_, steps_;
};

}  // namespace rf::engine
