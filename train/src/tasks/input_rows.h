// Texts and pairs to the rows that a model reads: truncation, and windows over texts that are too long.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/text/batch.h"
#include "rf/train/task_settings.h"

namespace rf::train {

// A row without padding.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> types;
  std::vector<int8_t> text_index;  // 0: of the first text, 1: of the second, -1: a special token
};
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

}  // namespace rf::train
