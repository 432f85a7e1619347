// The classes of `transformers` 5 over vocabularies of SentencePiece. Each builds its normalizers and its pre-tokenizer
// itself and takes the tokens and the character map from the directory's files.
#pragma once

#include <string_view>

#include "files/tokenizer_files.h"
#include "rf/text/tokenizer.h"

namespace rf::text {

struct SentencePieceClass {
  std::string_view name;
  // In config.json, separated by spaces.
  std::string_view model_types = {};
  // Its special tokens, if no file names them.
  SpecialNames special;
  SequenceTemplate (*frame)(const Vocabulary& vocabulary, const SpecialNames& names, const TokenizerConfig& config);
  // The steps over a model Unigram, or else over BPE.
  void (*set)(UnigramOptions& options, const TokenizerConfig& config) = nullptr;
  ByteFallbackOptions (*set_bpe)(const TokenizerConfig& config) = nullptr;
  // Makes the vocabulary of the class from the pieces of a SentencePiece file.
  void (*arrange)(SentencePieces& pieces, const SpecialNames& names, const TokenizerConfig& config) = nullptr;
  bool file_has_frame = false;    // a tokenizer.json's template is used instead of `frame`
  bool mask_strips_left = false;  // if no file has the token with its flags
};

const SentencePieceClass* find_sentencepiece_class(std::string_view name);           // null: another class
const SentencePieceClass* find_sentencepiece_class_of_model(std::string_view type);  // null: another class

}  // namespace rf::text
