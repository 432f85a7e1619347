// Looks tokens up and joins them.
#include "rf/text/decoding_stream.h"

#include "tokenizer/decoder.h"

namespace rf::text {

DecodingStream::DecodingStream(const Tokenizer& tokenizer, SkipSpecials skip)
    : tokenizer_(&tokenizer), skip_(skip), joiner_(std::make_unique<TokenJoiner>(tokenizer.options().decoding)) {}
DecodingStream::~DecodingStream() = default;
DecodingStream::DecodingStream(DecodingStream&&) noexcept = default;
DecodingStream& DecodingStream::operator=(DecodingStream&&) noexcept = default;

void DecodingStream::add(int32_t id) {
  if (const auto token = tokenizer_->shown(id, skip_)) joiner_->add(*token);
}

const DecodedText& DecodingStream::text() { return joiner_->result(); }

int64_t DecodingStream::steps() const { return joiner_->steps(); }

}  // namespace rf::text
