#include "splitters/charsmap.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "rf/io/error.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

constexpr uint32_t kLeafBit = 1U << 8, kValueBit = 1U << 31;
constexpr uint32_t kUnitsPerBlock = 256;  // units

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  const size_t rest = bytes.size() - std::min(bytes.size(), sizeof size);
  if (size == 0 || size % (kUnitsPerBlock * sizeof(uint32_t)) != 0 || size > rest) {
    fail("charsmap", "a character map of {} bytes must begin with the size of its units, a multiple of 1024, got {}",
         bytes.size(), size);
  }
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof size, size);
  units_[0] &= ~kValueBit;  // the root
  replacements_ = bytes.substr(sizeof size + size);
  if (!is_utf8(replacements_)) fail("charsmap", "the replacements of a character map must be UTF-8, got other bytes");
  for (size_t begin = 0; begin < replacements_.size();) {
    const size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    longest_ = std::max(longest_, end - begin);
    begin = end + 1;
  }
  for (size_t i = 0; i < units_.size(); ++i) {
    const uint32_t unit = units_[i];
    if ((unit & kValueBit) != 0) continue;  // a value, or unused
    const size_t next = i ^ offset(unit);
    if (next >= units_.size()) {
      fail("charsmap", "the units of a character map must refer to one of its {} units, got {}", units_.size(), next);
    }
    if ((unit & kLeafBit) == 0) continue;
    const size_t place = units_[next] & ~kValueBit;
    if (place >= replacements_.size() || !begins_character(replacements_[place])) {
      fail("charsmap", "the values of a character map must be places of its {} bytes of replacements, got {}",
           replacements_.size(), place);
    }
  }
  for (size_t c = 0; c < kept_.size(); ++c) {
    const char byte = static_cast<char>(c);
    kept_[c] = !find({&byte, 1});
  }
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  size_t at = offset(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) break;
    at ^= byte;
    const uint32_t unit = units_[at];
    if ((unit & (kValueBit | 0xFF)) != byte) break;
    at ^= offset(unit);
    if ((unit & kLeafBit) == 0) continue;
    const std::string_view value = std::string_view(replacements_).substr(units_[at] & ~kValueBit);
    return value.substr(0, value.find('\0'));
  }
  return std::nullopt;
}

}  // namespace rf::text
