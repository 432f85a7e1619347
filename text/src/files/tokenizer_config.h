// tokenizer_config.json, special_tokens_map.json and added_tokens.json, in the format of `transformers`.
#pragma once

#include <array>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/text/added_token.h"
#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary.h"

namespace rf::text {

inline constexpr const char kDictionaryKey[] = "roformer_dictionary";

// The contents of the three files; absent values are not set in any file.
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
  std::optional<bool> clean_up_tokenization_spaces;
  bool add_bos_or_eos = false;
};

// Throws Error, naming file and key, for a setting that would change the result and is not supported; warns of an
// unknown key (rf/io/warning.h).
TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_dir);
std::string format_tokenizer_config(const Tokenizer& tokenizer);

// An added token from a JSON object.
nlohmann::ordered_json format_added_token(const AddedToken& token);
AddedToken read_added_token(const nlohmann::json& value, const std::string& where, const std::string& key);

}  // namespace rf::text
