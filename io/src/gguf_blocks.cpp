// Readers of GGUF's blocks (gguf_blocks.h has their layouts).
#include "rf/io/gguf_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "rf/io/half.h"

namespace rf::io {
namespace {

constexpr uint32_t kBlock = 32, kHalfBlock = 16, kSuper = 256;

template <typename T>
T read_value(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float read_half(const std::byte* from) { return float_of_half(read_value<uint16_t>(from)); }

void read_f32(const std::byte* from, float* to) { *to = read_value<float>(from); }
void read_f16(const std::byte* from, float* to) { *to = read_half(from); }
void read_bf16(const std::byte* from, float* to) { *to = float_of_bf16(read_value<uint16_t>(from)); }

void read_bytes(float scale, const std::byte* from, uint32_t count, float* to) {
  for (uint32_t i = 0; i < count; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(from[i]));
}
void read_q8_0(const std::byte* from, float* to) { read_bytes(read_half(from), from + 2, kBlock, to); }
void read_q8_k(const std::byte* from, float* to) { read_bytes(read_value<float>(from), from + 4, kSuper, to); }

// Element i of fields of 4, 2 or 1 bits, in blocks of kWidth bytes.
template <uint32_t kBits, uint32_t kWidth>
uint32_t field(const std::byte* from, uint32_t i) {
  constexpr uint32_t kFields = 8 / kBits;
  const uint32_t byte = i / (kWidth * kFields) * kWidth + i % kWidth;
  return std::to_integer<uint32_t>(from[byte]) >> i / kWidth % kFields * kBits & ((1u << kBits) - 1);
}

// Unpacks blocks of 4 or 5 bits; the minimum is stored, or `kZero` steps below 0.
enum class Minimum { kStored, kFixed };
template <uint32_t kBits, Minimum kMinimum>
void read_nibbles(const std::byte* from, float* to) {
  constexpr float kZero = kBits == 4 ? 8 : 16;
  const float scale = read_half(from);
  from += 2;
  float minimum = 0;
  if constexpr (kMinimum == Minimum::kStored) {
    minimum = read_half(from);
    from += 2;
  }
  uint32_t fifth = 0;
  if constexpr (kBits == 5) {
    fifth = read_value<uint32_t>(from);
    from += 4;
  }
  for (uint32_t i = 0; i < kBlock; ++i) {
    const auto number = static_cast<float>(field<4, kHalfBlock>(from, i) | (fifth >> i & 1) << 4);
    to[i] = kMinimum == Minimum::kStored ? number * scale + minimum : (number - kZero) * scale;
  }
}

void read_values(float scale, const int8_t (&values)[16], const std::byte* from, float* to) {
  for (uint32_t i = 0; i < kBlock; ++i) to[i] = scale * static_cast<float>(values[field<4, kHalfBlock>(from, i)]);
}
void read_iq4_nl(const std::byte* from, float* to) { read_values(read_half(from), kGgufIq4Values, from + 2, to); }
void read_mxfp4(const std::byte* from, float* to) {
  constexpr int kBias = 128;
  read_values(std::ldexp(1.0F, std::to_integer<int>(*from) - kBias), kGgufFp4Values, from + 1, to);
}
void read_iq4_xs(const std::byte* from, float* to) {
  const float scale = read_half(from);
  const auto high = read_value<uint16_t>(from + 2);
  for (uint32_t part = 0; part < kSuper / kBlock; ++part) {
    const uint32_t low = std::to_integer<uint32_t>(from[4 + part / 2]) >> 4 * (part % 2) & 15;
    const int step = static_cast<int>(low | (uint32_t{high} >> 2 * part & 3) << 4) - 32;
    read_values(scale * static_cast<float>(step), kGgufIq4Values, from + 8 + kHalfBlock * part, to + kBlock * part);
  }
}

void read_q2_k(const std::byte* from, float* to) {
  const std::byte* const q = from + kSuper / 16;
  const float scale = read_half(from + 80), minimum = read_half(from + 82);
  for (uint32_t i = 0; i < kSuper; ++i) {
    const auto steps = std::to_integer<uint32_t>(from[i / 16]);
    to[i] = scale * static_cast<float>((steps & 15) * field<2, 32>(q, i)) - minimum * static_cast<float>(steps >> 4);
  }
}

void read_q3_k(const std::byte* from, float* to) {
  const std::byte *const q = from + kSuper / 8, *const steps = q + kSuper / 4;
  const float scale = read_half(from + 108);
  for (uint32_t i = 0; i < kSuper; ++i) {
    const uint32_t step = field<4, 8>(steps, i / 16) | field<2, 4>(steps + 8, i / 16) << 4;
    const uint32_t number = field<2, 32>(q, i) | field<1, 32>(from, i) << 2;
    to[i] = scale * static_cast<float>((static_cast<int>(step) - 32) * (static_cast<int>(number) - 4));
  }
}

template <uint32_t kBits>
void read_q4_k_or_q5_k(const std::byte* from, float* to) {
  const float scale = read_half(from), minimum = read_half(from + 2);
  const std::byte *const steps = from + 4, *const high = steps + 12, *const q = high + (kBits == 5 ? kSuper / 8 : 0);
  const auto step_of = [steps](uint32_t part, uint32_t which) {  // which: 0 of scales, 1 of minimums
    const auto low = std::to_integer<uint32_t>(steps[part % 4 + 4 * which]);
    return part < 4 ? low & 63 : field<4, 4>(steps + 8, part % 4 + 4 * which) | low >> 6 << 4;
  };
  for (uint32_t i = 0; i < kSuper; ++i) {
    const uint32_t number = field<4, 32>(q, i) | (kBits == 5 ? field<1, 32>(high, i) << 4 : 0);
    to[i] = scale * static_cast<float>(step_of(i / 32, 0) * number) - minimum * static_cast<float>(step_of(i / 32, 1));
  }
}

void read_q6_k(const std::byte* from, float* to) {
  const std::byte *const high = from + kSuper / 2, *const steps = high + kSuper / 4;
  const float scale = read_half(from + 208);
  for (uint32_t i = 0; i < kSuper; ++i) {
    const int number = static_cast<int>(field<4, 64>(from, i) | field<2, 32>(high, i) << 4) - 32;
    to[i] = scale * static_cast<float>(static_cast<int8_t>(steps[i / 16]) * number);
  }
}

// A byte of TQ1_0 is the digits' value divided by 3^5, times 256 and rounded up: multiplying by 3 shifts a digit out.
void read_tq1_0(const std::byte* from, float* to) {
  struct Part {
    uint32_t bytes, digits;
  };
  const float scale = read_half(from + 52);
  for (const auto& [bytes, digits] : {Part{32, 5}, Part{16, 5}, Part{4, 4}}) {
    uint32_t power = 1;
    for (uint32_t digit = 0; digit < digits; ++digit, power *= 3) {
      for (uint32_t i = 0; i < bytes; ++i) {
        const uint32_t rest = std::to_integer<uint32_t>(from[i]) * power & 255;
        *to++ = scale * (static_cast<float>(rest * 3 >> 8) - 1);
      }
    }
    from += bytes;
  }
}

void read_tq2_0(const std::byte* from, float* to) {
  const float scale = read_half(from + 64);
  for (uint32_t i = 0; i < kSuper; ++i) to[i] = scale * (static_cast<float>(field<2, 32>(from, i)) - 1);
}

constexpr GgufBlock kBlocks[] = {{GgufElement::kF32, "F32", 1, 4, read_f32},
                                 {GgufElement::kF16, "F16", 1, 2, read_f16},
                                 {GgufElement::kBF16, "BF16", 1, 2, read_bf16},
                                 {GgufElement::kQ8_0, "Q8_0", kBlock, 34, read_q8_0},
                                 {GgufElement::kQ4_0, "Q4_0", kBlock, 18, read_nibbles<4, Minimum::kFixed>},
                                 {GgufElement::kQ4_1, "Q4_1", kBlock, 20, read_nibbles<4, Minimum::kStored>},
                                 {GgufElement::kQ5_0, "Q5_0", kBlock, 22, read_nibbles<5, Minimum::kFixed>},
                                 {GgufElement::kQ5_1, "Q5_1", kBlock, 24, read_nibbles<5, Minimum::kStored>},
                                 {GgufElement::kQ2_K, "Q2_K", kSuper, 84, read_q2_k},
                                 {GgufElement::kQ3_K, "Q3_K", kSuper, 110, read_q3_k},
                                 {GgufElement::kQ4_K, "Q4_K", kSuper, 144, read_q4_k_or_q5_k<4>},
                                 {GgufElement::kQ5_K, "Q5_K", kSuper, 176, read_q4_k_or_q5_k<5>},
                                 {GgufElement::kQ6_K, "Q6_K", kSuper, 210, read_q6_k},
                                 {GgufElement::kQ8_K, "Q8_K", kSuper, 292, read_q8_k},
                                 {GgufElement::kIQ4_NL, "IQ4_NL", kBlock, 18, read_iq4_nl},
                                 {GgufElement::kIQ4_XS, "IQ4_XS", kSuper, 136, read_iq4_xs},
                                 {GgufElement::kTQ1_0, "TQ1_0", kSuper, 54, read_tq1_0},
                                 {GgufElement::kTQ2_0, "TQ2_0", kSuper, 66, read_tq2_0},
                                 {GgufElement::kMXFP4, "MXFP4", kBlock, 17, read_mxfp4}};

// By number; "" where ggml has removed a type.
constexpr std::string_view kNames[] = {
    "F32",   "F16",    "Q4_0",  "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  "",       "",
    "",      "TQ1_0",  "TQ2_0", "",     "",     "",        "MXFP4",  "NVFP4",   "Q1_0"};

}  // namespace

std::span<const GgufBlock> gguf_blocks() { return kBlocks; }

const GgufBlock* find_gguf_block(uint32_t type) {
  const auto* found = std::ranges::find(kBlocks, static_cast<GgufElement>(type), &GgufBlock::type);
  return found == std::end(kBlocks) ? nullptr : found;
}

std::string gguf_type_name(uint32_t type) {
  const bool named = type < std::size(kNames) && !kNames[type].empty();
  return named ? std::string(kNames[type]) : fmt::format("type {}", type);
}

}  // namespace rf::io
