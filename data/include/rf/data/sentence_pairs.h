// Sentences with their translations: two files with one line per pair, or one file with two tab-separated columns
// (.tsv). Files may be compressed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rf::data {

// {source, target}, or {a file with two columns}.
using PairFiles = std::vector<std::string>;

struct SentencePairs {
  std::vector<std::string> sources, targets;
  std::vector<int64_t> lines;  // line of each pair, from 1
  // Pairs with an empty side (only white space) are left out.
  int64_t empty = 0;
  std::string first_empty;  // "train.de, line 12"
};

// Throws Error unless one or two files are given; for files of different lengths, naming both and their lines; for a
// row without exactly two columns, naming its line; and for an unreadable file.
SentencePairs read_sentence_pairs(const PairFiles& files);

// The lines of a file, without their line ends; "-" is standard input.
std::vector<std::string> read_text_lines(const std::string& path);

}  // namespace rf::data
