// The instruction sets that Highway compiles the kernels for, one list for every file (include before any Highway
// header): a baseline, SSE4, AVX2 and AVX-512 on x86, NEON on ARM. The other targets would add compile time but no
// speed here; the length of SVE vectors is unknown at compile time. The address sanitizer builds without SSE4 too,
// whose vectors are as long as the baseline's.
#pragma once

#ifdef __SANITIZE_ADDRESS__
#define RF_UNSANITIZED_TARGETS HWY_SSE4
#else
#define RF_UNSANITIZED_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | RF_UNSANITIZED_TARGETS)
