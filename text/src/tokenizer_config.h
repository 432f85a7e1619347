// tokenizer_config.json of a BERT tokenizer, as `transformers` writes it.
#pragma once

#include <string>

#include "rf/text/tokenizer.h"

namespace rf::text {

// The options that the file asks for. Throws Error, naming the key, for a setting that would change the result in a way
// this tokenizer cannot follow, and for a key it does not know.
TokenizerOptions read_tokenizer_config(const std::string& path);
std::string format_tokenizer_config(const TokenizerOptions& options);

}  // namespace rf::text
