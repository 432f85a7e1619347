// tokenizer.json, the file of the library `tokenizers`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/text/added_token.h"
#include "rf/text/sequence_template.h"
#include "rf/text/tokenizer.h"

namespace rf::text {

// The contents of the file. The pipeline is kBert or kByteLevelBpe; RoFormer's, which the library cannot represent, is
// named by tokenizer_config.json.
struct TokenizerJson {
  std::vector<std::string> tokens;  // of the model, by id
  std::vector<Merge> merges;
  std::optional<std::string> unk_token;
  TokenizerOptions options;
  std::vector<AddedToken> added;
  std::optional<SequenceTemplate> sequence;
  std::string pad_token;  // of the padding section; empty: absent
};

// Throws Error, naming file and key, for settings that are not supported.
TokenizerJson read_tokenizer_json(const std::string& path);
std::string format_tokenizer_json(const Tokenizer& tokenizer);

// The tokens by id. Throws Error unless the ids are 0, 1, ... without a gap.
std::vector<std::string> read_token_ids(const nlohmann::json& vocab, const std::string& where);

}  // namespace rf::text
