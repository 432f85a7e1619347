// Memory of mapped files.
#pragma once

#include <cstddef>
#include <span>

namespace rf::io {

// Releases the memory of the whole pages within `bytes`, a part of a MappedFile (rf/io/files.h). Later reads load the
// pages from the file again.
void release_pages(std::span<const std::byte> bytes);

}  // namespace rf::io
