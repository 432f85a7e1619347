// The alphabet in both directions, built at compile time.
#include "models/byte_alphabet.h"

#include <array>

#include "rf/io/utf8.h"

namespace rf::text {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;

constexpr bool stands_for_itself(char32_t c) {
  return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

constexpr std::array<char16_t, 256> make_letters() {
  std::array<char16_t, 256> letters{};
  char32_t substitute = kFirstSubstitute;
  for (char32_t byte = 0; byte < 256; ++byte) {
    letters[byte] = static_cast<char16_t>(stands_for_itself(byte) ? byte : substitute++);
  }
  return letters;
}
constexpr std::array<char16_t, 256> kLetters = make_letters();

constexpr std::array<int16_t, 0x144> make_bytes() {
  std::array<int16_t, 0x144> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) bytes[kLetters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, 0x144> kBytes = make_bytes();

static_assert(kLetters[' '] == kSpaceLetter);

}  // namespace

bool append_bytes(std::string_view letters, std::string& bytes) {
  const size_t before = bytes.size();
  while (!letters.empty()) {
    const char32_t letter = take_utf8(letters).code;
    if (letter >= kBytes.size() || kBytes[letter] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes.push_back(static_cast<char>(kBytes[letter]));
  }
  return true;
}

std::string letters_of(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(kLetters[static_cast<uint8_t>(byte)], letters);
  return letters;
}

}  // namespace rf::text
