// The text of a stream of tokens, like the decoders of `tokenizers` and `transformers`' decode().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rf/text/tokenizer.h"

namespace rf::text {

// Tokenizer::decode_beginning() of the tokens so far, in time that does not grow with their number: text that further
// tokens cannot change is not examined again.
class DecodingStream {
 public:
  // The tokenizer must outlive it. spaces: kKept, as if it had no clean_up_tokenization_spaces.
  enum class Spaces { kCleanedUp, kKept };
  DecodingStream(const Tokenizer& tokenizer, SkipSpecials skip, Spaces spaces = Spaces::kCleanedUp)
      : tokenizer_(&tokenizer),
        skip_(skip),
        cleans_up_(spaces == Spaces::kCleanedUp && options().clean_up_tokenization_spaces) {}

  // Throws Error for an id that the vocabulary does not have.
  void add(int32_t id);
  // Valid until the next call.
  const DecodedText& text();

 private:
  const DecodingOptions& options() const { return tokenizer_->options().decoding; }
  void add_word_piece(std::string_view token);
  void add_bytes(std::string_view token);
  void add_fallback(std::string_view token);
  std::string fallback_text() const;  // of incomplete_
  void append_stripped(std::string_view text, std::string& to);
  void fix(size_t bytes);

  const Tokenizer* tokenizer_;
  SkipSpecials skip_;
  bool cleans_up_;
  bool is_first_ = true;
  std::string token_;       // a buffer
  std::string incomplete_;  // bytes of a character that is not complete, or of a run that has not ended
  std::string open_;        // joined text that may be cleaned up together with later text
  DecodedText result_;
  int stripped_ = 0;  // spaces left out at the front; -1: text has begun
  size_t fixed_ = 0;  // bytes of the result outside of open_
};

}  // namespace rf::text
