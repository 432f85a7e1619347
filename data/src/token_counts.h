// The number of occurrences of each token id in a split: a .npy file next to its shards, int64 [vocabulary size].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rf::data {

void write_token_counts(const std::string& path, std::span<const int64_t> counts);
// Throws Error unless the file holds one number for each id of the vocabulary.
std::vector<int64_t> read_token_counts(const std::string& path, int64_t vocab_size);
// Throws Error unless the numbers of the file are not negative and sum to the tokens of the split.
void check_token_counts(const std::string& path, std::span<const int64_t> counts, int64_t tokens);

}  // namespace rf::data
