// Tiles of a matrix product by oneDNN. Built from gemm_onednn.cpp, or without the library from gemm_no_onednn.cpp.
#pragma once

#include "linear/gemm_kernel.h"

namespace rf::core {

// Whether the build includes oneDNN and oneDNN has kernels for this machine.
bool has_onednn(Unit unit);
// Like multiply_tile, but a and c must hold kTileRows consecutive rows, and units must equal block_units.
void multiply_tile_onednn(const TileProduct& product);

}  // namespace rf::core
