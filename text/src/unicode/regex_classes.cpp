// Look-up in the generated table.
#include "unicode/regex_classes.h"

#include <cstddef>

namespace rf::text {
namespace {

#include "unicode/regex_tables.inc"

}  // namespace

uint8_t regex_classes(char32_t code) {
  const size_t block = kIndex[code >> kBlockBits];
  return kBlocks[block << kBlockBits | (code & ((1U << kBlockBits) - 1))];
}

}  // namespace rf::text
