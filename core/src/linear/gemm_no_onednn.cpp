// Replaces gemm_onednn.cpp in a build without oneDNN.
#include "common/error.h"
#include "linear/gemm_kernel.h"

namespace rf::core {

bool has_onednn(Unit /*unit*/) { return false; }

void multiply_tile_onednn(const TileProduct& /*product*/) {
  throw NotImplemented("[linear] backend onednn must be in the build, got a build without oneDNN");
}

}  // namespace rf::core
