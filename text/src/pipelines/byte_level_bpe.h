// Byte-level BPE as in `tokenizers` with its ByteLevel pre-tokenizer (GPT-2's tokenizer): NFC if configured, added
// tokens of the normalised text, a space at the front, digits one by one if configured, GPT-2's words, byte pairs. The
// source of a token with a part of a character is the whole character. With trim_offsets the source excludes white
// space at both ends of a token.
#pragma once

#include <string_view>

#include "added_tokens/added_tokens.h"
#include "models/byte_pair_model.h"

namespace rf::text {

// Appends the tokens of the text, or its first `max_tokens` tokens.
void encode_byte_level(const BytePairModel& model, const ByteLevelOptions& options, const AddedTokens& added,
                       std::string_view text, size_t max_tokens, Encoding& out);

}  // namespace rf::text
