// Chooses the kernels of a call: for the best instruction set, or the float64 reference loops.
#pragma once

namespace rf::core {

// True after rf_set_target("ref") or with RF_KERNEL=ref in the environment. Any other value there is refused: throws
// InvalidArgument.
bool use_reference();

// Whether kernels for AVX-512 may multiply in AMX tiles.
bool use_amx();

}  // namespace rf::core
