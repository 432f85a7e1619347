// Texts and pairs of texts to rows of model input: special tokens, truncation with or without the overflow, padding.
// The result is that of `transformers`' tokenizer(..., truncation=, stride=, return_overflowing_tokens=, padding=) on
// the library `tokenizers`, with two exceptions: token types are always given, although the model_input_names of
// RoFormer and others omit them; and overflow from a text that may not keep any token is an error, whereas that library
// makes one row of the whole text, longer than max_length.
//
// If the end of a text is truncated without further rows, only the beginning is tokenized, so time and memory do not
// grow with the rest (Tokenizer::encode_first). Its replaced_bytes then count ill-formed sequences before the end of
// the last kept token; for other texts they count all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::text {

enum class Truncation {
  kNone,
  kLongestFirst,  // the longer text of a pair loses tokens until both are equal, then both do
  kOnlyFirst,
  kOnlySecond
};
enum class Overflow { kDropped, kRows };  // kRows: truncated tokens become further rows
enum class Padding { kNone, kLongest, kMaxLength };
enum class Side { kRight, kLeft };
enum class AddSpecials { kYes, kNo };

struct BatchOptions {
  AddSpecials add_specials = AddSpecials::kYes;
  Truncation truncation = Truncation::kNone;
  Side truncation_side = Side::kRight;  // where tokens are cut off
  Overflow overflow = Overflow::kDropped;
  int64_t stride = 0;      // tokens that an overflowing row repeats from the row before
  int64_t max_length = 0;  // of a row, including special tokens; needed by truncation and Padding::kMaxLength
  Padding padding = Padding::kNone;
  Side padding_side = Side::kRight;
  int64_t pad_to_multiple_of = 1;
  int threads = 0;  // that tokenize, including the calling one; 0: all
};

// Settings of rows from the tokenizer's files; BatchEncoder only uses its options.
struct RowSettings {
  std::optional<int64_t> max_length;  // model_max_length; may be absent
  Side truncation_side = Side::kRight;
  Side padding_side = Side::kRight;
  bool token_types = true;  // whether transformers 5 gives them to models
};
RowSettings read_row_settings(const std::string& model_dir);

struct TextPair {
  std::string_view first;
  std::optional<std::string_view> second = {};
  // If there are words: parts of `first` in order, which alone are read, each as a separate text, as with
  // is_split_into_words. Tokens then have starts_word if they are the first of a word.
  std::span<const std::string_view> words = {};
};

struct Row {
  Encoding tokens;             // offsets into the text that a token comes from; [0, 0) for special tokens and padding
  std::vector<uint8_t> types;  // token type; 0 for padding
  std::vector<uint8_t> mask;   // 1: token, 0: padding
  std::vector<int8_t> text_index;  // 0: first text, 1: second, -1: special token or padding
  int64_t sample = 0;              // index of the text or pair in the batch

  size_t size() const { return tokens.size(); }
};

// Makes rows for one batch after another, with the same threads and memory. The tokenizer must outlive it; one thread
// at a time may call it.
class BatchEncoder {
 public:
  // Throws Error for options that contradict each other, and for padding without a [PAD] token.
  BatchEncoder(const Tokenizer& tokenizer, const BatchOptions& options);
  ~BatchEncoder();
  BatchEncoder(const BatchEncoder&) = delete;
  BatchEncoder& operator=(const BatchEncoder&) = delete;

  // Rows in the order of the samples, valid until the next call; a sample's overflowing rows follow its first one.
  // Throws the first Error in sample order: for a max_length below the number of special tokens, a text too short for
  // kOnlyFirst or kOnlySecond, a stride that is not below the number of tokens that the text may have, and pairs
  // without a template for pairs.
  std::span<const Row> encode(std::span<const TextPair> samples);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::text
