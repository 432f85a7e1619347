// The precompiled character map of a SentencePiece model: a double array of units over bytes (Darts), whose values are
// offsets of zero-terminated replacements.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rf::text {

class Charsmap {
 public:
  // Throws Error for a map with units or places outside of it.
  explicit Charsmap(std::string_view bytes);

  // The replacement of the shortest key at the front of the text, which stands for the whole text; nullopt without one.
  std::optional<std::string_view> find(std::string_view text) const;
  size_t longest() const { return longest_; }  // bytes of a replacement
  bool keeps(char ascii) const { return kept_[static_cast<uint8_t>(ascii)]; }

 private:
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

  std::vector<uint32_t> units_;
  std::string replacements_;
  size_t longest_ = 0;
  std::array<bool, 128> kept_{};
};

}  // namespace rf::text
