// Writes the shards of a split and chooses the split of a document. prepare() and merge() share this code, so that both
// write the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest.h"
#include "rf/data/prepare.h"
#include "rf/data/reader.h"
#include "rf/data/shard.h"

namespace rf::data {

inline constexpr std::string_view kTrain = "train", kValid = "valid", kTest = "test";

// Consecutive tokens of a document.
struct Tokens {
  std::span<const int32_t> ids;
  std::span<const uint8_t> starts_word;
};

// Writes the shards of one split, and the number of occurrences of each token; a new shard begins when one is full.
class SplitWriter {
 public:
  SplitWriter(std::string directory, std::string_view name, int64_t vocab_size, std::string vocab_hash,
              int64_t shard_tokens);

  void append(const Tokens& tokens);
  void end_document();  // ignored for a document without tokens
  void add(const Tokens& tokens, DocumentPart::End end);
  void finish();  // after the last document
  const ManifestSplit& contents() const { return contents_; }

 private:
  void finish_shard();

  std::string directory_, name_;
  int64_t size_;
  std::string hash_;
  int64_t shard_tokens_;
  ManifestSplit contents_;
  std::optional<ShardWriter> shard_;
  std::vector<int64_t> token_counts_;
  bool inside_document_ = false;
};

using SplitWriters = std::map<std::string, SplitWriter, std::less<>>;
// Finishes all splits; adds their counts to the manifest and the report.
void finish_splits(SplitWriters& splits, Manifest& manifest, PrepareReport& report);

// Assigns each document of the input to a split by a hash of its number. Documents without a token are not numbered.
// The first document that is not too long waits until both splits have one or the input ends.
class SplitAssigner {
 public:
  SplitAssigner(double valid_fraction, uint64_t seed, SplitWriter& train, SplitWriter& valid)
      : valid_fraction_(valid_fraction), seed_(seed), train_(train), valid_(valid), wanted_(valid_fraction > 0) {}

  void add(const Tokens& tokens, DocumentPart::End end);
  void finish();

 private:
  void wait(const Tokens& tokens);
  void end_document();
  SplitWriter& choose(int64_t number) const;
  void release(SplitWriter& split);
  void clear_waiting();

  double valid_fraction_;
  uint64_t seed_;
  SplitWriter& train_;
  SplitWriter& valid_;
  bool wanted_;                     // a document should wait, and none waits yet
  SplitWriter* current_ = nullptr;  // the split of the current document; null while it waits or is empty
  int64_t number_ = 0, waiting_number_ = 0;
  std::vector<int32_t> waiting_ids_;
  std::vector<uint8_t> waiting_starts_;
};

}  // namespace rf::data
