// Defines a pipeline: all its properties that the tokenizer and its files need. A pipeline is a function in the file of
// its algorithm that returns its entry, and its name in table.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens/added_tokens.h"
#include "models/piece_trie.h"
#include "models/wordpiece.h"
#include "rf/text/tokenizer.h"
#include "splitters/split_steps.h"
#include "splitters/splitter.h"

namespace rf::text {

// A tokenizer class of `transformers` whose directories are supported.
struct TokenizerClass {
  std::string_view name = {};                      // in tokenizer_config.json, without "Fast"
  std::vector<std::string_view> other_names = {};  // classes of other models that are the same tokenizer
  std::string_view model_type = {};                // in config.json
  SpecialNames special = {};                       // its special tokens, if no file names them
  // [CLS] and [SEP] around texts; null: by tokenizer.json, or else bare texts.
  SequenceTemplate (*frame)(int32_t cls, int32_t sep) = bert_template;
  bool ends_with_eos = false;     // the eos token is in place of [SEP]; a null one is left out
  bool trims_offsets = false;     // unless tokenizer_config.json says otherwise
  bool mask_strips_left = false;  // if no file has the token with its flags
};

// The extent to which tokenizer.json represents a pipeline.
enum class InTokenizerJson : uint8_t {
  kAll,
  kPart,  // `tokenizers` lacks its splitter: tokenizer_config.json names the class
  kNone   // a class in Python, which neither reads nor writes that file and decodes without `tokenizers`
};

enum class PieceModel : uint8_t { kWordPieces, kBytePairs, kUnigram };

using SplitterPtr = std::unique_ptr<Splitter>;

struct PipelineEntry {
  std::string_view name = {};  // on the command line and in messages
  PieceModel model = PieceModel::kWordPieces;
  std::vector<TokenizerClass> classes = {};  // the directories that are read as this pipeline
  // The class that is written to tokenizer_config.json. A pipeline without `classes` shares that of another one and is
  // named there by "roformer_pipeline".
  std::string_view saved_class = {};
  InTokenizerJson in_tokenizer_json = InTokenizerJson::kAll;
  bool segments_words = false;   // by jieba: needs a dictionary
  bool basic_tokenizer = false;  // Python's BasicTokenizer: one setting for case and accents, CJK characters are words

  // For word pieces: the splitter, whose words are then split into pieces.
  SplitterPtr (*make_splitter)(const TokenizerOptions& options, const Vocabulary& vocabulary,
                               const PieceTrie& trie) = nullptr;
  // The form in which a `normalized` added token is searched; null: such tokens are refused.
  std::string (*normalize)(const TokenizerOptions& options, std::string_view text) = nullptr;
  // For word pieces with `normalize`: encodes a text and matches added tokens in its normalised form.
  void (*encode_normalized)(const AddedTokens& added, const TokenizerOptions& options, std::string_view text,
                            PieceWriter& writer, Encoding& out) = nullptr;
};

// tokenizer_config.json's key for a pipeline that shares its class.
inline constexpr const char kPipelineKey[] = "roformer_pipeline";
// The class for which tokenizer.json defines everything.
inline constexpr const char kPlainClass[] = "PreTrainedTokenizerFast";

inline SpecialNames roberta_names(const char* unk) { return {"<pad>", unk, "<s>", "</s>", "<mask>", "<s>", "</s>"}; }

// The splitter of bert-legacy; the special tokens are the non-empty names.
SplitterPtr make_legacy_splitter(Case letter_case, const SpecialNames& names = {});
// Appends the tokens of the text, or its first `max_tokens` tokens.
void encode_byte_level(const BytePairModel& model, const ByteLevelOptions& options, const AddedTokens& added,
                       const SplitSteps& steps, std::string_view text, size_t max_tokens, Encoding& out);

// The same for Pipeline::kByteFallbackBpe.
void encode_byte_fallback(const BytePairModel& model, const Vocabulary& vocabulary, const ByteFallbackOptions& options,
                          const AddedTokens& added, std::string_view text, size_t max_tokens, Encoding& out);

// The same for Pipeline::kUnigram.
void encode_unigram(const UnigramModel& model, const UnigramOptions& options, const AddedTokens& added,
                    std::string_view text, size_t max_tokens, Encoding& out);

inline bool has_unigram(const TokenizerOptions& options) { return options.pipeline == Pipeline::kUnigram; }
inline bool has_byte_fallback(const TokenizerOptions& options) {
  return options.pipeline == Pipeline::kByteFallbackBpe;
}
inline bool has_byte_pairs(const TokenizerOptions& options) {
  return options.pipeline.entry().model == PieceModel::kBytePairs;
}
inline bool strips_accents(const TokenizerOptions& options) {
  return options.strip_accents.value_or(options.letter_case == Case::kLower);
}

}  // namespace rf::text
