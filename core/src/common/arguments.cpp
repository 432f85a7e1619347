// Copies of callers' structs (see the header).
#include "common/arguments.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"

namespace rf::core {

void copy_arguments(const char* where, const char* name, const void* given, size_t first, size_t known, void* copy) {
  require(given != nullptr, where, name, " must not be NULL, got NULL");
  const auto* bytes = static_cast<const unsigned char*>(given);
  size_t size = 0;
  std::memcpy(&size, bytes, sizeof size);
  require(size >= first && size <= kMaxStructSize, where, "struct_size of ", name, " must be in ", first, "..",
          kMaxStructSize, ", got ", size);
  for (size_t i = known; i < size; ++i) {
    require(bytes[i] == 0, where, name, " must be zero after byte ", known, ", where version ", rf_version(),
            " of the library has no field, got ", static_cast<int>(bytes[i]), " at byte ", i);
  }
  std::memcpy(copy, bytes, std::min(size, known));
}

}  // namespace rf::core
