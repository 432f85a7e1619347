// All shards of one split ("train" or "valid") of a directory that prepare() made, with consecutive document numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rf/data/shard.h"

namespace rf::data {

class Split {
 public:
  // Throws Error if the directory, a shard or the split is missing, if a shard does not match data.json, or if
  // the vocabulary hash differs from expected_hash ("": not checked). A split without documents is not an error here.
  Split(const std::string& data_dir, const std::string& name, const std::string& expected_hash);
  int64_t documents() const { return first_document_.back(); }
  int64_t tokens() const { return tokens_; }
  int64_t vocab_size() const { return vocab_size_; }
  const std::string& vocab_hash() const { return vocab_hash_; }
  const std::string& label() const { return label_; }  // "<directory>: <name>", for messages
  int64_t document_tokens(int64_t document) const;
  // Tokens [begin, begin + count) of a document into ids and starts_word, `count` elements each. Throws Error when they
  // are not inside the document.
  void copy(int64_t document, int64_t begin, int64_t count, int32_t* ids, uint8_t* starts_word) const;

 private:
  struct Place {
    const ShardReader* shard;
    int64_t begin, end;  // token indices in the shard
  };
  Place place(int64_t document) const;

  std::vector<ShardReader> shards_;
  std::vector<int64_t> first_document_;  // of each shard, then the number of documents
  int64_t tokens_ = 0, vocab_size_ = 0;
  std::string vocab_hash_, label_;
};

}  // namespace rf::data
