// The C library's allocator during training: the tensors of every step have the sizes of the step before, so memory
// that is freed is kept. Otherwise blocks above 32 MB go back to the system and are filled with zeros, page by page,
// again.
#pragma once

namespace rf::train {

// For the rest of the process; nothing where the C library is not glibc.
void keep_freed_memory();

}  // namespace rf::train
