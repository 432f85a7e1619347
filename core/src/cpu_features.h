// Instructions that Highway's list of instruction sets does not tell of.
#ifndef RF_CORE_CPU_FEATURES_H_
#define RF_CORE_CPU_FEATURES_H_

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

}  // namespace rf::core
#endif
