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

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
  void add(const std::vector<int32_t>& ids, const std::vector<uint8_t>& starts_word) {
    append(ids, starts_word);
    end_document();
  }
  int64_t tokens() const;
  int64_t documents() const;  // number of ended documents
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ShardReader {
 public:
  explicit ShardReader(const std::string& path);  // throws Error for a header or a size that does not match the layout
                                                  // above
  ~ShardReader();
  ShardReader(ShardReader&&) noexcept;
  int64_t tokens() const;
  int64_t documents() const;
  int64_t vocab_size() const;
  const std::string& vocab_hash() const;
  int64_t bytes() const;  // size of the file
  const std::string& path() const;
  // Reads the whole file once; later calls return immediately. Throws Error for any violation of the layout above.
  // Thread-safe: concurrent calls wait for the first one.
  void verify() const;
  // Indices are not checked: 0 <= document <= documents(), 0 <= index < tokens(). Before verify(), a damaged file may
  // give arbitrary numbers.
  int64_t document_begin(int64_t document) const;  // token index; document_begin(documents()) == tokens()
  // The tokens of consecutive documents in this shard. Before verify(), throws the same Error if an offset cannot be
  // valid.
  void document_lengths(int64_t first, std::span<int64_t> lengths) const;
  int32_t token(int64_t index) const;
  bool starts_word(int64_t index) const;
  // Tokens from `begin` on, as many as `ids` and `starts_word` have elements; starts_word is 1 at the start of a word.
  void copy(int64_t begin, std::span<int32_t> ids, std::span<uint8_t> starts_word) const;
  // Throws Error if the file was truncated after it was opened. Behind the new end, the last page reads as zeros, so
  // the check uses the last number of the file, which is 0 only in a shard without tokens. If it does not throw,
  // earlier results of the functions above were valid.
  void check_whole() const;
  // Releases pages that were read, so that they no longer count as memory of the process.
  void release_pages() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::data
