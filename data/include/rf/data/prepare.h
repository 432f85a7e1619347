// Documents (reader.h) to a prepared data directory: data.json (vocabulary hash and size, splits, shard files, counts,
// how it was made), the tokenizer's files, train-00000.rfs ..., valid-00000.rfs ... and, where there are inputs for it,
// test-00000.rfs ...
//
// Everything is written to "<output_dir>.preparing", which is renamed when it is complete; data.json is written last,
// so a directory with data.json is complete. Its contents are a function of the inputs and of all options but
// `threads`. Memory grows neither with the inputs nor with a document.
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

// Which words whole-word masking masks: the tokenizer's own, or those of jieba (rf/text/word_boundaries.h) with the
// dictionary that text::find_dictionary returns.
enum class WordRule { kTokenizer, kJieba };
const char* word_rule_name(WordRule rule);  // "tokenizer", "jieba"

// One part of several, each of which may be made on another machine: consecutive files of the inputs, of about the same
// size as the other parts. merge() makes of all parts the bytes that a run over the whole input makes.
struct InputPart {
  int64_t number = 1, parts = 1;  // 1 <= number <= parts
};

struct PrepareOptions {
  ReadOptions input{};
  std::string model_dir{};  // the tokenizer's files
  text::LoadOptions tokenizer{};
  WordRule words = WordRule::kTokenizer;
  // Missing, empty, or made by an earlier prepare() with nothing else in it. The latter is replaced once the new one is
  // complete, in one step where the file system can exchange two names.
  std::string output_dir{};
  // Of the documents, by a hash of (seed, number of the document among those with a token); 0: no held-out split.
  double valid_fraction = 0.05;
  // Files and directories as in `input`, read in the same way: all documents of the splits "valid" and "test". With
  // valid_inputs, valid_fraction is not used; without test_inputs, there is no such split.
  std::vector<std::string> valid_inputs{}, test_inputs{};
  uint64_t seed = 1;
  int64_t shard_tokens = int64_t{1} << 28;  // after this many a new shard begins
  int threads = 0;                          // that tokenize, including the one that reads; 0: all
  std::optional<InputPart> part{};          // what Split refuses to open, for merge()
};

struct PrepareReport {
  int64_t documents = 0;  // with at least one token
  int64_t train_tokens = 0, valid_tokens = 0, test_tokens = 0, unknown_tokens = 0;
  int64_t replaced_bytes = 0;  // invalid UTF-8 sequences replaced
  int64_t skipped_records = 0;
  int64_t input_bytes = 0;  // size of the files on disk
  // Files of an input directory or pattern that are in the output directory; they are not read.
  std::vector<std::string> left_out{};

  double unknown_rate() const {  // 0 without a token, as a part may be
    return double(unknown_tokens) / double(std::max<int64_t>(train_tokens + valid_tokens + test_tokens, 1));
  }
};

// With at least two documents and valid_fraction above 0, each split gets at least one: the first document of at most
// 2^22 tokens goes to the split that has none. Throws Error for unreadable inputs, inputs without a token, options out
// of range, and an output directory that holds other files.
PrepareReport prepare(const PrepareOptions& options, io::Progress& progress);

struct MergeOptions {
  std::vector<std::string> inputs{};  // the directories of all parts, in any order
  std::string output_dir{};           // as PrepareOptions::output_dir
};

// Joins the parts of an input to the data directory that prepare() makes of the whole, byte for byte. It reads and
// writes each token once, because where shards begin, and which documents are held out, depends on the parts before.
// Throws Error for a part that is missing, given twice, damaged, or made from other files, with another tokenizer or
// with other settings than the first.
PrepareReport merge(const MergeOptions& options, io::Progress& progress);

}  // namespace rf::data
