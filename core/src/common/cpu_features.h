// What the processor has: instructions that Highway's list of instruction sets does not cover, and its cache.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdint>

namespace rf::core {

// bf16: AVX512_BF16, one instruction rounds two vectors of floats to bfloat16. int8: AVX512_VNNI, four products of
// bytes added to each lane. amx: tiles of bfloat16 or bytes.
#if defined(__x86_64__)
inline bool has_bf16_instruction() {
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has;
}
inline bool has_int8_instruction() {
  static const bool has = __builtin_cpu_supports("avx512vnni") != 0;
  return has;
}
// A bit of EDX of the leaf of features.
inline bool has_feature(unsigned bit) {
  constexpr unsigned kFeatures = 7;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & 1u << bit) != 0;
}
inline bool has_amx_bf16() {
  static const bool has = has_feature(22);
  return has;
}
inline bool has_amx_int8() {
  static const bool has = has_feature(25);
  return has;
}
// Whether products of bfloat16 pairs are faster than products of floats. On Intel only the AMX tiles are, because its
// vector instruction takes four times as long as an FMA.
inline bool has_fast_bf16_pairs() {
  static const bool fast = has_bf16_instruction() && (!__builtin_cpu_is("intel") || has_amx_bf16());
  return fast;
}
#else
inline bool has_bf16_instruction() { return false; }
inline bool has_fast_bf16_pairs() { return false; }
inline bool has_int8_instruction() { return false; }
inline bool has_amx_bf16() { return false; }
inline bool has_amx_int8() { return false; }
#endif

// Whether this process may use the tiles: Linux reserves their registers on request, and may refuse.
bool may_use_amx();

// Bytes of the last-level cache that one core sees, read from the processor once; 32 MiB if it does not report them.
int64_t last_level_cache_bytes();

}  // namespace rf::core
