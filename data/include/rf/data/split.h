// All shards of one split ("train" or "valid") of a directory that prepare() made, with consecutive document numbers.
//
// Shards are opened lazily: the constructor reads data.json and the header of each shard. A shard is verified (shard.h)
// when its tokens are first copied. Resident memory does not grow with the shards: pages that were read are released
// when they may exceed about 256 MiB.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "rf/data/shard.h"

namespace rf::data {

class Split {
 public:
  // Throws Error if the directory, a shard or the split is missing, if a shard's header does not match data.json, if
  // the directory is a part that must first be merged, or if the vocabulary hash differs from expected_hash ("": not
  // checked). A split without documents is allowed here.
  Split(const std::string& data_dir, const std::string& name, const std::string& expected_hash);
  int64_t documents() const { return first_document_.back(); }
  int64_t tokens() const { return tokens_; }
  int64_t vocab_size() const { return vocab_size_; }
  const std::string& vocab_hash() const { return vocab_hash_; }
  const std::string& label() const { return label_; }  // "<directory>: <name>", for messages
  int64_t document_tokens(int64_t document) const;
  // The tokens of consecutive documents, without verifying their shards. Throws Error for a shard with invalid offsets.
  void document_lengths(int64_t first, std::span<int64_t> lengths) const;
  void verify() const;  // all shards, immediately
  // The number of occurrences of each token id, [vocab_size()], from the file that prepare() wrote next to the shards.
  // Throws Error if the file is damaged.
  std::vector<int64_t> token_counts() const;
  // Tokens [begin, begin + count) of a document into ids and starts_word, `count` elements each. Verifies the
  // document's shard. Throws Error if the range is not inside the document. Thread-safe.
  void copy(int64_t document, int64_t begin, int64_t count, int32_t* ids, uint8_t* starts_word) const;

 private:
  struct Place {
    size_t shard;
    int64_t document;  // in the shard
  };
  Place place(int64_t document) const;
  void count_pages(int64_t bytes) const;

  mutable std::atomic<int64_t> page_bytes_ = 0;  // upper estimate of the resident bytes
  std::deque<ShardReader> shards_;
  std::vector<int64_t> first_document_;  // first document of each shard, then the number of documents
  int64_t tokens_ = 0, vocab_size_ = 0, bytes_ = 0;
  std::string vocab_hash_, label_, token_counts_path_;
  std::vector<int64_t> token_counts_;  // from that file
};

}  // namespace rf::data
