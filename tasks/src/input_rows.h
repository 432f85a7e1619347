// Texts and pairs to the rows that a model reads: truncation, and windows over texts that are too long.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/tasks/task.h"
#include "rf/text/batch.h"

namespace rf::tasks {

TokenRow token_row(const text::Row& row);

class InputRows {
 public:
  // Overflow::kRows: all of a text that is too long, in windows, whatever settings.windows says.
  InputRows(std::shared_ptr<const text::Tokenizer> tokenizer, const TaskSettings& settings, text::Overflow overflow);
  // One row, or with settings.windows > 1 as many as a long text needs, at most that many: in the order of
  // BatchEncoder, for pairs with two long texts every window of one with every one of the other. `place` begins
  // messages about the text. Valid until the next call.
  std::span<const text::Row> rows(const std::string& place, const text::TextPair& texts);

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  size_t max_rows_;
  text::BatchEncoder encoder_;
  std::unique_ptr<text::BatchEncoder> tail_encoder_;  // keeps the ends; of Keep::kHeadTail
  std::vector<text::Row> joined_;
};

// Adds an input with these rows.
void add_input(std::span<const text::Row> rows, Example& example);
// Adds an input with the texts of the columns `text` and, if settings.columns has it, `pair`.
void add_text_input(const data::Record& record, const TaskSettings& settings, InputRows& rows, Example& example);

}  // namespace rf::tasks
