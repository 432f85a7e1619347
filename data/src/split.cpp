#include "rf/data/split.h"

#include <algorithm>

#include "manifest.h"
#include "rf/io/error.h"

namespace rf::data {
namespace {

constexpr int64_t kMaxPageBytes = int64_t{1} << 28;  // limit for resident pages of the shards
constexpr int64_t kWindowBytes = int64_t{1} << 16;   // Linux maps this much around a page on a read

}  // namespace

Split::Split(const std::string& data_dir, const std::string& name, const std::string& expected_hash)
    : label_(data_dir + ": " + name) {
  const Manifest manifest = read_manifest(data_dir);
  if (!expected_hash.empty() && manifest.vocab_hash != expected_hash) {
    fail("data", "{} must be prepared with the model's vocabulary {}, got vocabulary {} (run prepare again)", data_dir,
         expected_hash, manifest.vocab_hash);
  }
  if (manifest.part) {
    fail("data", "{} must be a whole data directory, got part {} of {} (roformer merge joins parts)", data_dir,
         manifest.part->number, manifest.part->parts);
  }
  const auto found = manifest.splits.find(name);
  if (found == manifest.splits.end()) fail("data", "{} must have the split \"{}\", got none", data_dir, name);
  vocab_size_ = manifest.vocab_size;
  vocab_hash_ = manifest.vocab_hash;
  token_counts_path_ = data_dir + "/" + found->second.token_counts;
  token_counts_ = read_token_counts(token_counts_path_, vocab_size_);
  first_document_.push_back(0);
  for (const std::string& shard_name : found->second.shards) {
    const ShardReader& shard = shards_.emplace_back(data_dir + "/" + shard_name);
    check_vocabulary(manifest, shard);
    tokens_ += shard.tokens();
    bytes_ += shard.bytes();
    first_document_.push_back(first_document_.back() + shard.documents());
  }
  if (tokens_ != found->second.tokens || documents() != found->second.documents) verify();  // names a damaged file
  check_counts(label_, found->second, documents(), tokens_);
}

Split::Place Split::place(int64_t document) const {
  if (document < 0 || document >= documents()) {
    fail("data", "a document must be in [0, {}), got {}", documents(), document);
  }
  const auto next = std::upper_bound(first_document_.begin(), first_document_.end(), document);
  const auto shard = static_cast<size_t>(next - first_document_.begin() - 1);
  return {shard, document - first_document_[shard]};
}

int64_t Split::document_tokens(int64_t document) const {
  int64_t length = 0;
  document_lengths(document, {&length, 1});
  return length;
}

void Split::document_lengths(int64_t first, std::span<int64_t> lengths) const {
  if (lengths.empty()) return;
  Place at = place(first);
  if (std::ssize(lengths) > documents() - first) {
    fail("data", "documents must be in [0, {}), got {} from {}", documents(), lengths.size(), first);
  }
  count_pages(kWindowBytes + std::ssize(lengths) * static_cast<int64_t>(sizeof(uint64_t)));
  while (!lengths.empty()) {
    const ShardReader& shard = shards_[at.shard];
    const auto count = std::min(lengths.size(), static_cast<size_t>(shard.documents() - at.document));
    shard.document_lengths(at.document, lengths.first(count));
    lengths = lengths.subspan(count);
    at = {at.shard + 1, 0};
  }
}

void Split::verify() const {
  for (const ShardReader& shard : shards_) shard.verify();
}

std::vector<int64_t> Split::token_counts() const {
  check_token_counts(token_counts_path_, token_counts_, tokens_);
  return token_counts_;
}

void Split::copy(int64_t document, int64_t begin, int64_t count, int32_t* ids, uint8_t* starts_word) const {
  const Place at = place(document);
  const ShardReader& shard = shards_[at.shard];
  shard.verify();
  const int64_t first = shard.document_begin(at.document), size = shard.document_begin(at.document + 1) - first;
  shard.check_whole();
  if (begin < 0 || count < 0 || begin > size || count > size - begin) {
    fail("data", "tokens of document {} must be in [0, {}), got {} from {}", document, size, count, begin);
  }
  const auto elements = static_cast<size_t>(count);
  shard.copy(first + begin, {ids, elements}, {starts_word, elements});
  shard.check_whole();
  // Pages that the read touches: tokens, word bits, the document's offsets and the last offset.
  constexpr int64_t kWindows = 4;
  count_pages(kWindows * kWindowBytes + count * static_cast<int64_t>(sizeof(int32_t)));
}

void Split::count_pages(int64_t bytes) const {
  if (bytes_ <= kMaxPageBytes || page_bytes_.fetch_add(bytes) + bytes <= kMaxPageBytes) return;
  page_bytes_ = 0;
  for (const ShardReader& shard : shards_) shard.release_pages();
}

}  // namespace rf::data
