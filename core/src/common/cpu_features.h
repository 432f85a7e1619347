// Instructions that Highway's list of instruction sets does not cover.
#ifndef RF_CORE_COMMON_CPU_FEATURES_H_
#define RF_CORE_COMMON_CPU_FEATURES_H_

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rf::core {

// AVX512_BF16: one instruction rounds two vectors of floats to bfloat16.
inline bool has_bf16_instruction() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has;
#else
  return false;
#endif
}

// AVX512_VNNI: four products of bytes added to each lane.
inline bool has_int8_instruction() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512vnni") != 0;
  return has;
#else
  return false;
#endif
}

#if defined(__x86_64__)
// A bit of EDX of the leaf of features.
inline bool has_feature(unsigned bit) {
  constexpr unsigned kFeatures = 7;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & 1u << bit) != 0;
}
#endif

// AMX tiles of bfloat16.
inline bool has_amx_bf16() {
#if defined(__x86_64__)
  constexpr unsigned kAmxBf16 = 22;
  static const bool has = has_feature(kAmxBf16);
  return has;
#else
  return false;
#endif
}

// AMX tiles of bytes.
inline bool has_amx_int8() {
#if defined(__x86_64__)
  constexpr unsigned kAmxInt8 = 25;
  static const bool has = has_feature(kAmxInt8);
  return has;
#else
  return false;
#endif
}

// Whether this process may use the tiles: Linux reserves their registers on request, and may refuse.
bool may_use_amx();

}  // namespace rf::core
#endif
