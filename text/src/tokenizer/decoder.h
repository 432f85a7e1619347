// Converts tokens back to text, like the decoders of `tokenizers` and `transformers`' decode().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rf/text/tokenizer.h"

namespace rf::text {

// Joins a stream of tokens. Text that further tokens cannot change is not examined again.
class TokenJoiner {
 public:
  explicit TokenJoiner(const DecodingOptions& options) : options_(options) {}

  void add(std::string_view token);
  // The text of the tokens so far; valid until the next call.
  const DecodedText& result();
  int64_t steps() const { return steps_; }  // bytes cleaned up, so far

 private:
  void add_word_piece(std::string_view token);
  void add_bytes(std::string_view token);
  void fix(size_t bytes);

  const DecodingOptions options_;
  bool is_first_ = true;
  std::string token_;       // a buffer
  std::string incomplete_;  // bytes of a character that is not complete
  std::string open_;        // joined text that may be cleaned up together with later text
  DecodedText result_;
  size_t fixed_ = 0;  // bytes of the result outside of open_
  int64_t steps_ = 0;
};

}  // namespace rf::text
