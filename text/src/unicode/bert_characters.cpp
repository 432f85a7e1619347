// Look-up in the generated tables.
#include "unicode/bert_characters.h"

#include <cstddef>

namespace rf::text {
namespace {

#include "unicode/normalizer_tables.inc"

}  // namespace

std::u32string_view BertCharacter::decomposition() const { return {kPool + pool, decomposition_length}; }

std::u32string_view BertCharacter::lower() const { return {kPool + pool + decomposition_length, lower_length}; }

const BertCharacter& bert_character(char32_t code) {
  constexpr char32_t kLowMask = (1U << kBlockBits) - 1;
  return kRecords[kBlocks[static_cast<size_t>(kIndex[code >> kBlockBits]) << kBlockBits | (code & kLowMask)]];
}

}  // namespace rf::text
