#include "token_counts.h"

#include "rf/io/error.h"
#include "rf/io/npy.h"

namespace rf::data {

void write_token_counts(const std::string& path, std::span<const int64_t> counts) {
  io::write_npy(path, io::DType::kI64, {std::ssize(counts)}, std::as_bytes(counts));
}

std::vector<int64_t> read_token_counts(const std::string& path, int64_t vocab_size) {
  const io::NpyArray array = io::read_npy(path);
  if (array.dtype != io::DType::kI64 || array.shape != std::vector{vocab_size}) {
    fail("data", "{} must hold an int64 for each of the {} ids of the vocabulary, got {} numbers", path, vocab_size,
         array.data.size() / sizeof(int64_t));
  }
  return array.to_int64(path);
}

void check_token_counts(const std::string& path, std::span<const int64_t> counts, int64_t tokens) {
  int64_t left = tokens;
  for (const int64_t count : counts) {
    if (count < 0 || count > left) fail("data", "{} must sum to the {} tokens of the split, got more", path, tokens);
    left -= count;
  }
  if (left > 0) fail("data", "{} must sum to the {} tokens of the split, got {}", path, tokens, tokens - left);
}

}  // namespace rf::data
