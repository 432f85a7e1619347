// How often each token id occurs in a split: a .npy file beside its shards, int64 [vocabulary size].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rf::data {

void write_token_counts(const std::string& path, std::span<const int64_t> counts);
// Throws Error unless the file holds one number for each id of the vocabulary.
std::vector<int64_t> read_token_counts(const std::string& path, int64_t vocab_size);
// Throws Error unless these numbers of that file are from 0 on and sum to the tokens of the split.
void check_token_counts(const std::string& path, std::span<const int64_t> counts, int64_t tokens);

}  // namespace rf::data
