// Converts texts and pairs to model rows: truncation, and windows over overlong texts.
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
  // Overflow::kRows: splits overlong texts into windows, regardless of settings.windows.
  InputRows(std::shared_ptr<const text::Tokenizer> tokenizer, const TaskSettings& settings, text::Overflow overflow);
  // One row, or with settings.windows > 1 as many as a long text needs, up to that limit, in the order of BatchEncoder.
  // For pairs with two long texts, every window of one is combined with every window of the other. `place` begins
  // messages about the text. Valid until the next call.
  std::span<const text::Row> rows(const std::string& place, const text::TextPair& texts);

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  size_t max_rows_;
  text::BatchEncoder encoder_;
  std::unique_ptr<text::BatchEncoder> tail_encoder_;  // keeps the ends; for Keep::kHeadTail
  std::vector<text::Row> joined_;
};

// A task that reads rows of texts; by default the head classifies an input.
class RowTask : public Task {
 public:
  RowTask(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer,
          text::Overflow overflow = text::Overflow::kDropped)
      : settings_(settings), rows_(std::move(tokenizer), settings, overflow) {}
  Head head() const override { return Head::kSequenceClassification; }

 protected:
  const TaskSettings settings_;
  InputRows rows_;
};

// TaskKind::make of a kind.
template <typename OfKind>
std::unique_ptr<Task> make_task(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer) {
  return std::make_unique<OfKind>(settings, std::move(tokenizer));
}

// Adds an input with these rows.
void add_input(std::span<const text::Row> rows, Example& example);
// Adds an input with the texts of the columns `text` and, if settings.columns has it, `pair`.
void add_text_input(const data::Record& record, const TaskSettings& settings, InputRows& rows, Example& example);

}  // namespace rf::tasks
