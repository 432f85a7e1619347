// Instructions that Highway's list of instruction sets does not cover.
#ifndef RF_CORE_COMMON_CPU_FEATURES_H_
#define RF_CORE_COMMON_CPU_FEATURES_H_

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rf::core {

// AVX512_BF16: two vectors of floats rounded to bfloat16 at once.
inline bool has_bf16_instruction() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0;
  return has;
#else
  return false;
#endif
}

// AMX tiles of bfloat16.
inline bool has_amx_bf16() {
#if defined(__x86_64__)
  constexpr unsigned kFeatures = 7, kAmxBf16 = 1u << 22;  // leaf, and bit of EDX
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  static const bool has = __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBf16) != 0;
  return has;
#else
  return false;
#endif
}

// Whether this process may use the tiles: Linux reserves their registers on request, and may refuse.
bool may_use_amx();

}  // namespace rf::core
#endif
