// The tokenizer class that a directory names.
#pragma once

#include <optional>
#include <string_view>

#include "files/sentencepiece_classes.h"
#include "pipelines/pipeline.h"

namespace rf::text {

// The tokenizer class of a directory; without a pipeline tokenizer.json defines everything.
struct DirectoryClass {
  std::optional<Pipeline> pipeline = {};
  const TokenizerClass* settings = nullptr;
  const SentencePieceClass* pieces = nullptr;

  bool has_word_pieces() const { return pipeline && pipeline->has_word_pieces(); }
  bool is(InTokenizerJson part) const { return pipeline && pipeline->entry().in_tokenizer_json == part; }
};

// By the name in tokenizer_config.json, and by the "model_type" of config.json; none: unknown.
std::optional<DirectoryClass> class_of_name(std::string_view name);
std::optional<DirectoryClass> class_of_model(std::string_view type);
// A class of transformers that does not read all of tokenizer.json, and that class_of_name() lacks.
bool is_unsupported_class(std::string_view name);
bool is_decoder_type(std::string_view type);

}  // namespace rf::text
