// Element types of GGUF tensors, by ggml's numbers. A row is stored as blocks of equally many elements and bytes;
// kernels compute on the blocks as GgufFile::bytes() gives them. Multi-byte fields are little-endian, fp16 is IEEE half
// precision, and bit fields are counted from the low bit. Fields are in this order (ggml-common.h):
//
//   Q8_0    d fp16, q int8[32]                       x = d q
//   Q4_0    d fp16, q u4[32]                         x = d (q - 8)
//   Q4_1    d fp16, m fp16, q u4[32]                 x = d q + m
//   Q5_0    d fp16, h u1[32], q u4[32]               x = d (q + 16 h - 16)
//   Q5_1    d fp16, m fp16, h u1[32], q u4[32]       x = d (q + 16 h) + m
//   IQ4_NL  d fp16, q u4[32]                         x = d kGgufIq4Values[q]
//   MXFP4   e u8, q u4[32]                           x = 2^(e - 128) kGgufFp4Values[q]
//   u4[32]: the low halves of 16 bytes are elements 0..15, the high ones 16..31; h: bit i is of element i
//
// Super-blocks of 256 elements:
//
//   Q2_K    s u8[16], q u2[256], d fp16, m fp16      x = d (s & 15) q - m (s >> 4)       s of 16 elements
//   Q3_K    h u1[256], q u2[256], s 12 bytes, d fp16 x = d (s - 32) (q + 4 h - 4)        s of 16, 6 bits
//   Q4_K    d fp16, m fp16, s 12 bytes, q u4[256]    x = d s q - m n                     s and n of 32, 6 bits
//   Q5_K    d, m, s the same, h u1[256], q u4[256]   x = d s (q + 16 h) - m n
//   Q6_K    q u4[256], h u2[256], s int8[16], d fp16 x = d s (q + 16 h - 32)             s of 16
//   Q8_K    d float, q int8[256], int16[16] of sums  x = d q
//   IQ4_XS  d fp16, h u16, s u4[8], q u4[256]        x = d (s + 16 h - 32) kGgufIq4Values[q]    s and h (2 bits) of 32
//   TQ1_0   q 48 and 4 bytes, d fp16                 x = d (q - 1)   five (then four) digits of base 3 per byte
//   TQ2_0   q u2[256], d fp16                        x = d (q - 1)
//   u2[256]: pair j of byte 32 c + i is element 128 c + 32 j + i
//   u4[256]: half j of byte w c + i is element 2 w c + w j + i, where w is 32; 64 for Q6_K, 16 for IQ4_XS
//   u1[256]: bit j of byte i is element 32 j + i
//   The 12 bytes b of Q3_K: s[i] is half i / 8 of b[i % 8], and above it pair i / 4 of b[8 + i % 4].
//   Of Q4_K and Q5_K: s[i] and n[i], i < 4, are the low 6 bits of b[i] and b[4 + i]; s[4 + i] and n[4 + i] are the
//   halves of b[8 + i], and above them the high 2 bits of b[i] and b[4 + i].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rf::io {

inline constexpr int8_t kGgufIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kGgufFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

enum class GgufElement : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39
};

struct GgufBlock {
  GgufElement type;
  std::string_view name;
  uint32_t elements, bytes;
  void (*read)(const std::byte* from, float* to);  // one block; results are rounded once
};

std::span<const GgufBlock> gguf_blocks();         // every type that can be read
const GgufBlock* find_gguf_block(uint32_t type);  // nullptr for a type that cannot
std::string gguf_type_name(uint32_t type);        // any type of ggml, for example IQ2_XXS; else "type 99"

}  // namespace rf::io
