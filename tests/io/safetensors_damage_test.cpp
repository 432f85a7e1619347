// Damaged safetensors files: every truncation, every single changed byte of length and header, and random edits end in
// success or in an Error. Run under the address and undefined-behaviour sanitizers too.
#include <array>
#include <random>

#include "io/support.h"
#include "rf/io/files.h"
#include "rf/io/safetensors.h"

namespace rf::io {
namespace {

using rf::testing::MemoryFile;
using rf::testing::TempDir;

std::string valid_file() {
  const TempDir dir;
  const std::array<std::byte, 24> data{};
  const std::span<const std::byte> bytes(data);
  write_safetensors(dir.file("valid"),
                    {{"layer.weight", DType::kF32, {2, 3}, bytes},
                     {"layer.bias", DType::kBF16, {3}, bytes.first(6)},
                     {"none", DType::kI64, {0, 2}, {}},
                     {"flag", DType::kBool, {}, bytes.first(1)}},
                    {{"format", "pt"}});
  return read_file(dir.file("valid"));
}

// True when the file is read; then each view must lie within the mapping, which touching its bytes shows.
bool reads(std::string_view bytes) {
  const MemoryFile memory(bytes);
  const std::string path = memory.path();
  try {
    const SafetensorsFile file(path);
    unsigned sum = 0;
    for (const TensorView& tensor : file.tensors()) {
      for (const std::byte b : tensor.data) sum += std::to_integer<unsigned>(b);
    }
    EXPECT_LT(sum, 256u * bytes.size() + 1);
    return true;
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find(path), std::string_view::npos) << error.what();
    EXPECT_LT(std::string_view(error.what()).size(), 1000u);
    return false;
  }
}

TEST(SafetensorsDamage, EveryTruncationIsRefused) {
  const std::string good = valid_file();
  ASSERT_TRUE(reads(good));
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(reads(std::string_view(good).substr(0, length))) << length;
  }
  EXPECT_FALSE(reads(good + "x"));
}

TEST(SafetensorsDamage, EveryChangedHeaderByteIsSurvived) {
  const std::string good = valid_file();
  const size_t end = good.rfind('}') + 1;
  for (size_t i = 0; i < end; ++i) {
    for (int value = 0; value < 256; value += i < 8 ? 1 : 3) {  // the length whole, the text every third value
      std::string bad = good;
      bad[i] = static_cast<char>(value);
      reads(bad);
    }
    for (const char c : std::string_view("\"\\{}[],:-0e.\n\x7f\x80\xff", 17)) {
      std::string bad = good;
      bad[i] = c;
      reads(bad);
    }
  }
}

TEST(SafetensorsDamage, RandomEditsAreSurvived) {
  const std::string good = valid_file();
  std::mt19937 random(1);
  const auto below = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::string_view words[] = {"\"shape\":",           "[",  "]",     "{",    "}",
                                    "18446744073709551616", "-1", "1e400", "null", ","};
  for (int round = 0; round < 5000; ++round) {
    std::string bad = good;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = 8 + below(bad.size() - 8);
      switch (below(3)) {
        case 0: bad.insert(at, words[below(std::size(words))]); break;
        case 1: bad.erase(at, 1 + below(10)); break;
        default: bad.insert(8 + below(bad.size() - 8), bad.substr(at, below(40)));
      }
    }
    // Half of them with a header length that fits the edit, so that the JSON and not the length is what is wrong.
    if (below(2) == 0) {
      const uint64_t length = bad.size() - 8 - 31;
      bad.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
    }
    reads(bad);
  }
}

}  // namespace
}  // namespace rf::io
