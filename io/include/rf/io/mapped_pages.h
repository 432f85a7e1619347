// Memory of mapped files.
#pragma once

#include <cstddef>
#include <span>

namespace rf::io {

// Gives the memory of the whole pages within `bytes`, a part of a MappedFile (rf/io/files.h), back to the system. What
// is read of them again comes from the file.
void release_pages(std::span<const std::byte> bytes);

}  // namespace rf::io
