// A tokenizer in a model directory, read and written like `transformers` 5.
#pragma once

#include <filesystem>

#include "rf/text/tokenizer.h"

namespace rf::text {

enum class Dictionaries { kLoaded, kLeftOut };

TokenizerParts read_tokenizer(const std::filesystem::path& model_dir, const LoadOptions& options,
                              Dictionaries dictionaries);
// The same for a GGUF file.
TokenizerParts read_gguf_tokenizer(const std::string& path);
void write_tokenizer(const std::filesystem::path& model_dir, const Tokenizer& tokenizer);
// The dictionary's files, and its hash in the existing tokenizer_config.json.
void write_dictionary(const std::filesystem::path& model_dir, const Dictionary& dictionary);

}  // namespace rf::text
