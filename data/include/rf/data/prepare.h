// Converts documents (reader.h) to a prepared data directory: data.json (vocabulary hash and size, splits, shard files,
// counts, settings), the tokenizer's files, train-00000.rfs ..., valid-00000.rfs ... and, if test inputs are given,
// test-00000.rfs ...
//
// Everything is written to "<output_dir>.preparing", which is renamed when it is complete. data.json is written last,
// so a directory with data.json is complete. Its contents depend only on the inputs and on all options except
// `threads`. Memory does not grow with the inputs or with the length of a document.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/data/reader.h"
#include "rf/io/progress.h"
#include "rf/text/tokenizer.h"

namespace rf::data {

// Words for whole-word masking: the tokenizer's words, or jieba's (rf/text/word_boundaries.h) with the dictionary that
// text::find_dictionary returns.
enum class WordRule { kTokenizer, kJieba };
const char* word_rule_name(WordRule rule);  // "tokenizer", "jieba"

// One of several parts, which may be prepared on different machines: consecutive files of the inputs, about as large as
// the other parts. merge() joins all parts to the same bytes as a run over the whole input.
struct InputPart {
  int64_t number = 1, parts = 1;  // 1 <= number <= parts
};

struct PrepareOptions {
  ReadOptions input{};
  std::string model_dir{};  // the tokenizer's files
  text::LoadOptions tokenizer{};
  WordRule words = WordRule::kTokenizer;
  // Must be missing, empty, or made by an earlier prepare() without other files in it. An earlier result is replaced
  // when the new one is complete, in one step if the file system can exchange two names.
  std::string output_dir{};
  // Fraction of the documents, chosen by a hash of (seed, index of the document among the documents that contain a
  // token); 0: no held-out split.
  double valid_fraction = 0.05;
  // Files and directories as in `input`, read in the same way: all documents of the splits "valid" and "test". With
  // valid_inputs, valid_fraction is ignored; the split "test" exists only with test_inputs.
  std::vector<std::string> valid_inputs{}, test_inputs{};
  uint64_t seed = 1;
  int64_t shard_tokens = int64_t{1} << 28;  // a new shard begins after this many
  int threads = 0;                          // number of threads that tokenize, including the reader; 0: all
  std::optional<InputPart> part{};          // prepares only this part, which Split refuses to open until merge()
};

struct PrepareReport {
  int64_t documents = 0;  // with at least one token
  int64_t train_tokens = 0, valid_tokens = 0, test_tokens = 0, unknown_tokens = 0;
  int64_t replaced_bytes = 0;  // invalid UTF-8 sequences replaced
  int64_t skipped_records = 0;
  int64_t input_bytes = 0;  // size of the files on disk
  // Files of an input directory or pattern that are inside the output directory; they are not read.
  std::vector<std::string> left_out{};

  double unknown_rate() const {  // 0 without tokens, as in some parts
    return double(unknown_tokens) / double(std::max<int64_t>(train_tokens + valid_tokens + test_tokens, 1));
  }
};

// With at least two documents and valid_fraction above 0, each split gets at least one: the first document of at most
// 2^22 tokens goes to the split that is still empty. Throws Error for unreadable inputs, inputs without a token,
// options out of range, and an output directory that contains other files.
PrepareReport prepare(const PrepareOptions& options, io::Progress& progress);

struct MergeOptions {
  std::vector<std::string> inputs{};  // the directories of all parts, in any order
  std::string output_dir{};           // as PrepareOptions::output_dir
};

// Joins the parts of an input to the same data directory, byte for byte, as prepare() of the whole input. It reads and
// writes each token once, because shard boundaries and held-out documents depend on earlier parts. Throws Error for a
// part that is missing, given twice, damaged, or made from other files, with another tokenizer or with other settings
// than the first.
PrepareReport merge(const MergeOptions& options, io::Progress& progress);

struct VerifyReport {
  int64_t shards = 0, bytes = 0, documents = 0, tokens = 0;  // counts of intact shards
  struct Damage {
    std::string file;  // its name in the directory
    std::string error;
  };
  std::vector<Damage> damaged{};
};

// Reads all shards in turn, continuing after a damaged one. Checks the layout and the checksum of each (shard.h), and
// that they match data.json. Memory does not grow with the data. Throws Error if data.json is missing or malformed.
VerifyReport verify(const std::string& data_dir, io::Progress& progress);

}  // namespace rf::data
