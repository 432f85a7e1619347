// Tokens at which a text of a GGUF model ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rf/io/gguf.h"

namespace rf::io {

// Whether llama.cpp treats a token with this text as an end of text, regardless of the file's keys and types.
bool is_gguf_end_text(std::string_view token);

// The ids for which llama_vocab_is_eog of llama.cpp is true (src/llama-vocab.cpp, as of November 2026): the ids of the
// keys eos, eot, eom, fim_pad, fim_rep and fim_sep, in that order, and tokens with certain texts. Throws Error if a
// key's id is not a token.
std::vector<int32_t> gguf_end_tokens(const GgufFile& file);

}  // namespace rf::io
