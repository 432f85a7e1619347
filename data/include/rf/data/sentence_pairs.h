// Sentences with their translations: two files with a line for each pair, or one of two columns with a tab between them
// (.tsv). Compressed files are read, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::data {

// {source, target}, or {a file of two columns}.
using PairFiles = std::vector<std::string>;

struct SentencePairs {
  std::vector<std::string> sources, targets;
  std::vector<int64_t> lines;  // of each pair, from 1
  // Pairs of which one side has nothing but white space are left out.
  int64_t empty = 0;
  std::string first_empty;  // "train.de, line 12"
};

// Throws Error for another number of files than one or two; files of different lengths, naming both and their lines; a
// row without exactly two columns, naming its line; a file that cannot be read.
SentencePairs read_sentence_pairs(const PairFiles& files);

// The lines of a file, without what ends them; "-" is standard input.
std::vector<std::string> read_text_lines(const std::string& path);

}  // namespace rf::data
