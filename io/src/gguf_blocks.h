// Elements of GGUF tensors, by ggml's types. Quantised elements come in blocks of 32 with a scale d and, in some types,
// a minimum m, both of half precision (ggml-common.h):
//
//   Q8_0  d, int8 q[32]                            x = d q
//   Q4_0  d, 16 bytes of two q of 4 bits           x = d (q - 8)      low halves are elements 0..15, high ones 16..31
//   Q4_1  d, m, the same                           x = d q + m
//   Q5_0  d, 32 bits, 16 bytes: bit i is the       x = d (q - 16)
//         fifth of element i
//   Q5_1  d, m, the same                           x = d q + m
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rf::io {

struct GgufBlock {
  uint32_t type;
  std::string_view name;
  uint32_t elements, bytes;
  void (*read)(const std::byte* from, float* to);  // of one block
};

const GgufBlock* find_gguf_block(uint32_t type);  // nullptr for an unsupported type
// "F32, F16, .."
std::string readable_gguf_types();
// The name of any type of ggml, for example "Q4_K"; an unknown number gives "type 99".
std::string gguf_type_name(uint32_t type);

}  // namespace rf::io
