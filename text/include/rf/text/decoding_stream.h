// The text of a stream of tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "rf/text/tokenizer.h"

namespace rf::text {

class TokenJoiner;

// Tokenizer::decode_beginning() of the tokens so far, in time that does not grow with their number: final text is not
// decoded again.
class DecodingStream {
 public:
  // The tokenizer must outlive it.
  DecodingStream(const Tokenizer& tokenizer, SkipSpecials skip);
  ~DecodingStream();
  DecodingStream(DecodingStream&&) noexcept;
  DecodingStream& operator=(DecodingStream&&) noexcept;

  // Throws Error for an id that the vocabulary does not have.
  void add(int32_t id);
  // Valid until the next call.
  const DecodedText& text();
  int64_t steps() const;  // bytes decoded, so far

 private:
  const Tokenizer* tokenizer_;
  SkipSpecials skip_;
  std::unique_ptr<TokenJoiner> joiner_;
};

}  // namespace rf::text
