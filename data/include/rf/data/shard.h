// Token shards: whole documents as token ids, memory-mapped.
//
// Little-endian file of four sections, each at a multiple of 64 bytes, with zeros between them:
//   header    128 bytes: magic "RFSHARD1", u32 version = 1, u32 bytes per token (2 if the vocabulary has at most 65536
//             tokens, otherwise 4), u64 tokens, u64 documents, u64 vocabulary size, 32 characters vocabulary hash,
//             48 zero bytes, u64 checksum: XXH3 of all that follows the header, then of the 120 bytes before it
//   tokens    u16 or u32 each
//   words     one bit per token, lowest bit first: 1 where a word starts
//   documents u64 each and one more: the first token of each document, then the number of tokens
// Tokens come first, so that they can be written as they arrive. The file is not compressed, and a document never spans
// two shards. A reader checks the header and the size when it opens a file, and the rest in verify(): the checksum,
// that the document offsets rise from 0 to the number of tokens, and that every token id is in the vocabulary. So
// opening a shard of any size reads only one page.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "rf/io/files.h"

namespace rf::data {

// Writes to disk as tokens arrive, so memory does not grow. finish() gives the complete file its name; a writer that is
// destroyed earlier leaves no file behind.
class ShardWriter {
 public:
  // vocab_hash: 32 hexadecimal digits (text::Vocabulary::hash).
  ShardWriter(const std::string& path, int64_t vocab_size, const std::string& vocab_hash);
  ~ShardWriter();
  // The next tokens of a document, without [CLS] and [SEP]. Throws Error for an id out of range or for different
  // lengths.
  void append(std::span<const int32_t> ids, std::span<const uint8_t> starts_word);
  void end_document();  // ignored if no token was added since the last one
  int64_t tokens() const;
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct ShardHeader;

class ShardReader {
 public:
  explicit ShardReader(const std::string& path);  // throws Error for a header or a size that does not match the layout
                                                  // above
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int64_t vocab_size() const { return vocab_size_; }
  const std::string& vocab_hash() const { return vocab_hash_; }
  int64_t bytes() const { return std::ssize(file_.bytes()); }  // size of the file
  const std::string& path() const { return path_; }
  // Reads the whole file once; later calls return immediately. Throws Error for any violation of the layout above.
  // Thread-safe: concurrent calls wait for the first one.
  void verify() const;
  // Indices are not checked: 0 <= document <= documents(), 0 <= index < tokens(). Before verify(), a damaged file may
  // give arbitrary numbers.
  // The index of a document's first token; document_begin(documents()) == tokens().
  int64_t document_begin(int64_t document) const { return static_cast<int64_t>(offsets_[document]); }
  // The tokens of consecutive documents in this shard. Before verify(), throws the same Error if an offset cannot be
  // valid.
  void document_lengths(int64_t first, std::span<int64_t> lengths) const;
  // Tokens from `begin` on, as many as `ids` and `starts_word` have elements; starts_word is 1 at the start of a word.
  void copy(int64_t begin, std::span<int32_t> ids, std::span<uint8_t> starts_word) const;
  // Throws Error if the file was truncated after it was opened. Behind the new end, the last page reads as zeros, so
  // the check uses the last number of the file, which is 0 only in a shard without tokens. If it does not throw,
  // earlier results of the functions above were valid.
  void check_whole() const;
  // Releases pages that were read, so that they no longer count as memory of the process.
  void release_pages() const;

 private:
  std::string path_;
  io::MappedFile file_;
  int64_t tokens_ = 0, documents_ = 0, vocab_size_ = 0;
  std::string vocab_hash_;
  std::shared_ptr<const ShardHeader> header_;  // as read at opening: the file may be cut short later
  const std::byte* token_bytes_ = nullptr;
  bool is_short_ = false;  // 2 bytes per token, otherwise 4
  const uint8_t* words_ = nullptr;
  const uint64_t* offsets_ = nullptr;
  mutable std::mutex verifying_;
  mutable std::atomic<bool> is_verified_ = false;
};

}  // namespace rf::data
