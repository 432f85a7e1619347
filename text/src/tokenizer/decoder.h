// Tokens back to text, as by the decoders of `tokenizers` and `transformers`' decode().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rf/text/tokenizer.h"

namespace rf::text {

// Joins tokens that come one after another. What no further token can change is not looked at again.
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
  std::string open_;        // what is joined and may yet be cleaned up together with what follows
  DecodedText result_;
  size_t fixed_ = 0;  // bytes of the result that are no part of open_
  int64_t steps_ = 0;
};

}  // namespace rf::text
