// Tokens back to text, as by the decoders of `tokenizers` and `transformers`' decode().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::text {

DecodedText join_tokens(const std::vector<std::string_view>& tokens, const DecodingOptions& options);

}  // namespace rf::text
