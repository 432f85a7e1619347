// Permission to use instructions whose registers the system keeps only on request (see the header).
#include "common/cpu_features.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace rf::core {

bool may_use_amx() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, and the state's number
  static const bool may = has_bf16_instruction() && has_amx_bf16() && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return may;
#else
  return false;
#endif
}

}  // namespace rf::core
