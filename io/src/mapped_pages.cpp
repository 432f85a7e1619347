// Memory of mapped files on POSIX (rf/io/mapped_pages.h).
#include "rf/io/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace rf::io {

void release_pages(std::span<const std::byte> bytes) {
  static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, end = (begin + bytes.size()) / kPage * kPage;
  // On failure, the memory merely stays in use.
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace rf::io
