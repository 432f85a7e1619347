// Token shards: whole documents as token ids, memory-mapped.
//
// Little-endian file: a 128-byte header (magic "RFSHARD1", version, bytes a token (2 or 4), counts of tokens and
// documents, the vocabulary's size and hash, XXH3 of the payload), then the document offsets (u64, documents + 1), the
// tokens (u16 or u32), and one "starts a word" bit a token. Sections start at multiples of 64 bytes.
// A reader checks the header, the file's size and the offsets (rising, within the tokens), and that every token id is
// below the vocabulary's size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rf/data/reader.h"
#include "rf/io/progress.h"

namespace rf::data {

// One document's tokens, without [CLS] and [SEP].
struct Document {
  std::vector<int32_t> ids;
  std::vector<uint8_t> starts_word;
};

class ShardWriter {  // bounded memory: tokens go to disk as they come; atomic, the file appears at finish()
 public:
  ShardWriter(const std::string& path, int64_t vocab_size, const std::string& vocab_hash);
  ~ShardWriter();
  void add(const std::vector<int32_t>& ids, const std::vector<uint8_t>& starts_word);  // one document; empty: ignored
  int64_t tokens() const;
  int64_t documents() const;
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class ShardReader {
 public:
  explicit ShardReader(const std::string& path);
  ~ShardReader();
  ShardReader(ShardReader&&) noexcept;
  int64_t tokens() const;
  int64_t documents() const;
  int64_t vocab_size() const;
  const std::string& vocab_hash() const;
  int64_t document_begin(int64_t document) const;  // token index; document_begin(documents()) == tokens()
  int32_t token(int64_t index) const;
  bool starts_word(int64_t index) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A prepared data directory: data.json (vocabulary hash and size, splits, shard files, counts, how it was made),
// vocab.txt and tokenizer_config.json, train-*.rfs and valid-*.rfs.
struct PrepareOptions {
  std::vector<std::string> inputs;
  std::string model_dir;  // vocab.txt and tokenizer_config.json
  std::string output_dir;
  DocumentRule document_rule = DocumentRule::kFile;
  double valid_fraction = 0.05;                 // of the documents, by a hash of (seed, document number)
  uint64_t seed = 1;
  int64_t shard_tokens = int64_t{1} << 28;      // a new shard after this many
  int threads = 0;                              // 0: all
};
struct PrepareReport {
  int64_t documents = 0, train_tokens = 0, valid_tokens = 0, unknown_tokens = 0, replaced_bytes = 0, input_bytes = 0;
};
PrepareReport prepare(const PrepareOptions& options, io::Progress& progress);

// All shards of one split ("train" or "valid") of a data directory, documents numbered through.
class Split {
 public:
  // Throws Error when the directory, a shard or the split is missing, or the vocabulary hash differs from expected_hash
  // ("": not checked).
  Split(const std::string& data_dir, const std::string& name, const std::string& expected_hash);
  int64_t documents() const;
  int64_t tokens() const;
  int64_t document_tokens(int64_t document) const;
  void copy(int64_t document, int64_t begin, int64_t count, int32_t* ids, uint8_t* starts_word) const;
  int64_t vocab_size() const;

 private:
  std::vector<ShardReader> shards_;
  std::vector<int64_t> first_document_;
};

}  // namespace rf::data
