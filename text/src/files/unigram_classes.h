// The classes of `transformers` 5 over a model Unigram. Each builds its normalizers and its pre-tokenizer itself and
// takes the tokens and the character map from the directory's files.
#pragma once

#include <string_view>

#include "files/tokenizer_files.h"
#include "rf/text/tokenizer.h"

namespace rf::text {

struct UnigramClass {
  std::string_view name;
  void (*set)(UnigramOptions& options, const TokenizerConfig& config);
  // Null: the template of the file.
  SequenceTemplate (*frame)(const Vocabulary& vocabulary, const SpecialNames& names) = nullptr;
};

const UnigramClass* find_unigram_class(std::string_view name);  // null: another class

}  // namespace rf::text
