// A tokenizer in a model directory, read and written like `transformers` 5.
#pragma once

#include <array>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

inline constexpr const char kDictionaryKey[] = "roformer_dictionary";

// The contents of tokenizer_config.json, special_tokens_map.json and added_tokens.json, in the format of
// `transformers`; absent values are not set in any file.
struct TokenizerConfig {
  std::string path;                                                     // of tokenizer_config.json, for messages
  std::string tokenizer_class;                                          // without "Fast"
  std::optional<Pipeline> pipeline;                                     // that of kPipelineKey
  std::string dictionary_hash;                                          // Dictionary::hash; empty: not recorded
  std::array<std::optional<AddedToken>, kSpecialRoles.size()> special;  // by role, no ids; no content: null in a file
  std::vector<AddedToken> extra;                                        // extra special tokens; no ids
  std::optional<std::vector<AddedToken>> added_tokens;  // with ids: added_tokens_decoder, else added_tokens.json
  bool has_added_tokens_decoder = false;
  std::optional<bool> do_lower_case, strip_accents, tokenize_chinese_chars, add_prefix_space, trim_offsets;
  std::optional<bool> clean_up_tokenization_spaces, legacy, add_bos_token, add_eos_token, keep_accents, split_by_punct;
  int64_t extra_ids = 100;
  std::string python_key = {};  // a key that changes the tokens of classes in Python only; empty: none
  bool is_qwens_own = false;    // auto_map names the class of gte-Qwen2's authors, which adds the end of a text itself
};

// Throws Error, naming file and key, for a setting that would change the result and is not supported; warns of an
// unknown key (rf/io/warning.h).
TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_dir);
// Whether a list of words with one space between them has this word.
bool has_word(std::string_view words, std::string_view word);

// An added token from a JSON object.
nlohmann::ordered_json format_added_token(const AddedToken& token);
AddedToken read_added_token(const nlohmann::json& value, const std::string& where, const std::string& key);

// The contents of tokenizer.json, the file of the library `tokenizers`. The pipeline is kBert, kByteLevelBpe,
// kByteFallbackBpe or kUnigram; RoFormer's, which the library cannot represent, is named by tokenizer_config.json.
struct TokenizerJson {
  std::vector<std::string> tokens;  // of the model, by id
  std::vector<Merge> merges;
  std::optional<std::string> unk_token;
  TokenizerOptions options;
  std::vector<AddedToken> added;
  std::optional<SequenceTemplate> sequence;
  std::string pad_token;  // of the padding section; empty: absent
  SpecialNames special = kNoSpecialNames;
};

// Throws Error, naming file and key, for settings that are not supported.
TokenizerJson read_tokenizer_json(const std::string& path);
// Normalizers of tokenizer.json without settings.
inline constexpr std::pair<std::string_view, NormalizerStep::Kind> kPlainNormalizers[] = {
    {"NFC", NormalizerStep::Kind::kNfc},
    {"NFD", NormalizerStep::Kind::kNfd},
    {"NFKC", NormalizerStep::Kind::kNfkc},
    {"NFKD", NormalizerStep::Kind::kNfkd},
    {"Nmt", NormalizerStep::Kind::kNmt},
    {"Lowercase", NormalizerStep::Kind::kLowercase},
    {"StripAccents", NormalizerStep::Kind::kStripAccents}};
// Its sections model, normalizer, pre_tokenizer and decoder, for a model Unigram.
void read_unigram_json(const nlohmann::json& file, const std::string& path, TokenizerJson& out);

// A piece of SentencePiece.
struct SentencePiece {
  enum Kind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  std::string text;
  float score = 0;
  Kind kind = kNormal;
};
using SentencePieces = std::vector<SentencePiece>;
enum class MergeOrder { kByPlace, kByScore };
struct SentencePieceClass;  // sentencepiece_classes.h

// The model files of SentencePiece, the first that exists.
inline constexpr const char* kSentencePieceFiles[] = {"tokenizer.model", "sentencepiece.bpe.model", "spiece.model",
                                                      "spm.model"};
// Reads such a file as transformers' class does. Throws Error for a file in another format, and for settings that are
// not supported.
TokenizerJson read_sentencepiece(const std::string& path, const SentencePieceClass& known, const SpecialNames& names,
                                 const TokenizerConfig& config);
// The same of a vocabulary; `unigram` has the map and the unknown token.
TokenizerJson tokenizer_of_pieces(SentencePieces pieces, MergeOrder order, const SentencePieceClass& known,
                                  const TokenizerConfig& config, UnigramOptions unigram);

// The file of ranks that a directory has, tiktoken's or Mistral's tekken.json; null: none.
const char* rank_file(const std::filesystem::path& dir);
inline constexpr std::string_view kTekkenFile = "tekken.json", kLlamaRanks = "tokenizer.model";
// Throw Error, naming the file, for base64, ranks and keys that break its rules. kOfConfig: tokenizer_config.json has
// the special tokens.
enum class RankSpecials { kOfFile, kOfConfig };
TokenizerJson read_ranks(const std::string& path, RankSpecials specials);
TokenizerJson read_tekken(const std::string& path);

// The merge "left right"; nullopt unless there is exactly one space.
std::optional<Merge> split_merge(std::string_view line);
// The tokens by id. Throws Error unless the ids are 0, 1, ... without a gap.
std::vector<std::string> read_token_ids(const nlohmann::json& vocab, const std::string& where);

}  // namespace rf::text
