#include "rf/data/split.h"

#include <algorithm>

#include "manifest.h"
#include "rf/io/error.h"

namespace rf::data {

Split::Split(const std::string& data_dir, const std::string& name, const std::string& expected_hash)
    : label_(data_dir + ": " + name) {
  const Manifest manifest = read_manifest(data_dir);
  if (!expected_hash.empty() && manifest.vocab_hash != expected_hash) {
    fail("data", "{} must be prepared with the model's vocabulary {}, got vocabulary {} (run prepare again)", data_dir,
         expected_hash, manifest.vocab_hash);
  }
  const auto found = manifest.splits.find(name);
  if (found == manifest.splits.end()) fail("data", "{} must have the split \"{}\", got none", data_dir, name);
  vocab_size_ = manifest.vocab_size;
  vocab_hash_ = manifest.vocab_hash;
  first_document_.push_back(0);
  for (const std::string& shard_name : found->second.shards) {
    const std::string path = data_dir + "/" + shard_name;
    const ShardReader& shard = shards_.emplace_back(path);
    if (shard.vocab_hash() != vocab_hash_ || shard.vocab_size() != vocab_size_) {
      fail("data", "{} must have the vocabulary of data.json, {} of {} tokens, got {} of {}", path, vocab_hash_,
           vocab_size_, shard.vocab_hash(), shard.vocab_size());
    }
    tokens_ += shard.tokens();
    first_document_.push_back(first_document_.back() + shard.documents());
  }
  if (tokens_ != found->second.tokens || documents() != found->second.documents) {
    fail("data", "{}: the shards must hold {} tokens in {} documents, got {} in {}", label_, found->second.tokens,
         found->second.documents, tokens_, documents());
  }
}

Split::Place Split::place(int64_t document) const {
  if (document < 0 || document >= documents()) {
    fail("data", "a document must be in [0, {}), got {}", documents(), document);
  }
  const auto next = std::upper_bound(first_document_.begin(), first_document_.end(), document);
  const auto i = next - first_document_.begin() - 1;
  const int64_t local = document - first_document_[i];
  const Place at{&shards_[i], shards_[i].document_begin(local), shards_[i].document_begin(local + 1)};
  at.shard->check_whole();
  return at;
}

int64_t Split::document_tokens(int64_t document) const {
  const Place at = place(document);
  return at.end - at.begin;
}

void Split::copy(int64_t document, int64_t begin, int64_t count, int32_t* ids, uint8_t* starts_word) const {
  const Place at = place(document);
  const int64_t size = at.end - at.begin;
  if (begin < 0 || count < 0 || begin > size || count > size - begin) {
    fail("data", "tokens of document {} must be in [0, {}), got {} from {}", document, size, count, begin);
  }
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = at.shard->token(at.begin + begin + i);
    starts_word[i] = at.shard->starts_word(at.begin + begin + i) ? 1 : 0;
  }
  at.shard->check_whole();
}

}  // namespace rf::data
