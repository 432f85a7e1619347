// data.json, the table of contents of a prepared directory: written by prepare and read by Split.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rf/data/shard.h"

namespace rf::data {

inline constexpr const char* kManifestName = "data.json";

struct ManifestSplit {
  int64_t documents = 0, tokens = 0;
  std::vector<std::string> shards;  // file names inside the directory
  std::string token_counts;         // also a file name
};

// One of several parts (InputPart), and settings that all parts must share in addition to those in a complete
// data.json.
struct ManifestPart {
  int64_t number = 1, parts = 1, shard_tokens = 1;
  std::string input_hash;  // hash of the names and sizes of the files of all parts
  std::string quotes, bad_records;
};

struct Manifest {
  std::string vocab_hash;
  int64_t vocab_size = 0;
  std::map<std::string, ManifestSplit> splits;
  std::vector<std::string> tokenizer_files;  // the files of text::kTokenizerFiles that prepare wrote
  std::optional<ManifestPart> part;
  // The settings, as documentation; only their presence is checked.
  std::vector<std::string> inputs;
  std::map<std::string, std::vector<std::string>> split_inputs;  // for splits with separate inputs
  std::string format, field, document_rule;
  std::string words = "tokenizer";
  std::string dictionary;  // text::Dictionary::hash; empty: none was used
  double valid_fraction = 0;
  uint64_t seed = 0;
  int64_t input_files = 0, input_bytes = 0, skipped_records = 0, unknown_tokens = 0, replaced_bytes = 0;
};

// Throws Error for a missing or malformed file, an unknown key, a shard name that is a path, or a name that is not one
// of the tokenizer's files.
Manifest read_manifest(const std::string& data_dir);
void write_manifest(const std::string& data_dir, const Manifest& manifest);

// The size on disk of the shards that exist.
int64_t shard_bytes(const std::string& data_dir, const Manifest& manifest);
// Throws Error unless the shard has the vocabulary of the manifest.
void check_vocabulary(const Manifest& manifest, const ShardReader& shard);
// Throws Error unless the shards of a split, "<directory>: <name>", match its manifest.
void check_counts(const std::string& label, const ManifestSplit& split, int64_t documents, int64_t tokens);

// The number of occurrences of each token id in a split: a .npy file next to its shards, int64 [vocabulary size].
void write_token_counts(const std::string& path, std::span<const int64_t> counts);
// Throws Error unless the file holds one number for each id of the vocabulary.
std::vector<int64_t> read_token_counts(const std::string& path, int64_t vocab_size);
// Throws Error unless the numbers of the file are not negative and sum to the tokens of the split.
void check_token_counts(const std::string& path, std::span<const int64_t> counts, int64_t tokens);

}  // namespace rf::data
