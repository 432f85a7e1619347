// Synthetic tasks that ask what a position encoding can express apart from language: rows of symbols, with an answer at
// some of their tokens. Rows are functions of (task, seed, step), the same for every encoding.
//
// A row has a header and tokens - 1 symbols of an alphabet of kAlphabet.
//
//   copy back         the header names an offset k; the answer at a token is the symbol k tokens before it
//   first occurrence  kPlaces symbols of a row are letters, at places drawn for each row, the others fillers; the
//                     answer at a letter is whether it is there for the first time
//   count             the same with fewer letters; the answer is how often the letter was there before, up to kMaxCount
//
// A row has the same number of letters whatever its length, so answers of long rows are as likely as those of short
// ones: what changes with the length is the distance between letters alone.
//
// Ids: 0 is padding, then the symbols, then the headers. The label of symbol or number i is i + 1.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rf/train/labelled_rows.h"

namespace rf::reproduce {

inline constexpr int64_t kAlphabet = 32, kPlaces = 32, kMaxCount = 15;

struct SyntheticTask {
  std::string name;
  enum class Answer { kCopy, kIsFirst, kCount } answer = Answer::kCopy;
  std::vector<int64_t> offsets = {};  // kCopy: rising
  int64_t letters = kAlphabet;        // the symbols of others that are asked for
};
void to_json(nlohmann::json& json, const SyntheticTask& task);

// The battery.
const std::vector<SyntheticTask>& synthetic_tasks();
// Of the ids of a task's rows.
int64_t vocabulary_size(const SyntheticTask& task);

// tokens > kPlaces, and above every offset.
train::LabelledRows synthetic_rows(const SyntheticTask& task, uint64_t seed, int64_t step, int64_t rows,
                                   int64_t tokens);
// The same without the labels of the first half of each row. In a row of twice the training length the others are at
// positions that no row had in training.
train::LabelledRows held_out_synthetic_rows(const SyntheticTask& task, int64_t rows, int64_t tokens);

}  // namespace rf::reproduce
