// Blocks of GGUF tensors (gguf_blocks.h).
#include "gguf_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "rf/io/half.h"

namespace rf::io {
namespace {

constexpr uint32_t kBlock = 32, kHalfBlock = 16;

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

void read_q8_0(const std::byte* from, float* to) {
  const float scale = read_half(from);
  for (uint32_t i = 0; i < kBlock; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(from[2 + i]));
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
    const auto byte = std::to_integer<uint32_t>(from[i % kHalfBlock]);
    const uint32_t q = (i < kHalfBlock ? byte & 15 : byte >> 4) | (fifth >> i & 1) << 4;
    const auto number = static_cast<float>(q);
    to[i] = kMinimum == Minimum::kStored ? number * scale + minimum : (number - kZero) * scale;
  }
}

constexpr GgufBlock kBlocks[] = {{0, "F32", 1, 4, read_f32},
                                 {1, "F16", 1, 2, read_f16},
                                 {30, "BF16", 1, 2, read_bf16},
                                 {8, "Q8_0", kBlock, 34, read_q8_0},
                                 {2, "Q4_0", kBlock, 18, read_nibbles<4, Minimum::kFixed>},
                                 {3, "Q4_1", kBlock, 20, read_nibbles<4, Minimum::kStored>},
                                 {6, "Q5_0", kBlock, 22, read_nibbles<5, Minimum::kFixed>},
                                 {7, "Q5_1", kBlock, 24, read_nibbles<5, Minimum::kStored>}};

// By number; "" where ggml has removed a type.
constexpr std::string_view kNames[] = {"F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
                                       "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                                       "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                                       "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
                                       "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

}  // namespace

const GgufBlock* find_gguf_block(uint32_t type) {
  const auto* found = std::ranges::find(kBlocks, type, &GgufBlock::type);
  return found == std::end(kBlocks) ? nullptr : found;
}

std::string readable_gguf_types() {
  std::string names;
  for (const GgufBlock& block : kBlocks) names += (names.empty() ? "" : ", ") + std::string(block.name);
  return names;
}

std::string gguf_type_name(uint32_t type) {
  const bool named = type < std::size(kNames) && !kNames[type].empty();
  return named ? std::string(kNames[type]) : fmt::format("type {}", type);
}

}  // namespace rf::io
