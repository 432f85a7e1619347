// Strict reading of tokenizer_config.json: tokenizer_class, do_lower_case, strip_accents and tokenize_chinese_chars are
// followed; every other key that would change the result must have the value BERT has; the keys that cannot change it
// are listed; an unknown key is an error.
#include "tokenizer_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "splitter.h"

namespace rf::text {
namespace {

using nlohmann::json;

constexpr std::string_view kHarmless[] = {"model_max_length",
                                          "max_len",
                                          "max_length",
                                          "padding_side",
                                          "truncation_side",
                                          "stride",
                                          "truncation_strategy",
                                          "pad_to_multiple_of",
                                          "pad_token_type_id",
                                          "name_or_path",
                                          "tokenizer_file",
                                          "special_tokens_map_file",
                                          "model_input_names",
                                          "backend",
                                          "is_local",
                                          "local_files_only",
                                          "processor_class",
                                          "auto_map",
                                          "_commit_hash",
                                          "clean_up_tokenization_spaces",
                                          "transformers_version"};
constexpr std::string_view kClasses[] = {"BertTokenizer", "BertTokenizerFast", "BertTokenizerLegacy"};
constexpr std::pair<std::string_view, Special> kTokenKeys[] = {{"pad_token", Special::kPad},
                                                               {"unk_token", Special::kUnk},
                                                               {"cls_token", Special::kCls},
                                                               {"sep_token", Special::kSep},
                                                               {"mask_token", Special::kMask}};

[[noreturn]] void refuse(std::string_view path, std::string_view key, std::string_view rule, const json& value) {
  fail("tokenizer_config", "{}: \"{}\" must be {}, got {}", path, key, rule, value.dump());
}

bool read_bool(std::string_view path, const std::string& key, const json& value) {
  if (!value.is_boolean()) refuse(path, key, "true or false", value);
  return value.get<bool>();
}

// A special token is its text, or an object whose "content" is the text and which asks for no white space around it.
bool is_special(const json& value, std::string_view text) {
  if (value.is_string()) return value.get<std::string_view>() == text;
  if (!value.is_object() || !value.contains("content") || value["content"] != text) return false;
  const auto unset = [&value](const char* key) { return !value.contains(key) || value[key] == false; };
  return unset("lstrip") && unset("rstrip") && unset("single_word");
}

void check_added_tokens(std::string_view path, const std::string& key, const json& value) {
  for (const json& token : value) {
    const bool known = std::any_of(kSpecialTokens.begin(), kSpecialTokens.end(),
                                   [&token](std::string_view text) { return is_special(token, text); });
    if (!known) refuse(path, key, "made of [PAD], [UNK], [CLS], [SEP] and [MASK] without stripping", token);
  }
}

bool is_option(std::string_view key) {
  return key == "do_lower_case" || key == "strip_accents" || key == "tokenize_chinese_chars";
}

void check_key(std::string_view path, const std::string& key, const json& value) {
  const auto* token = std::find_if(std::begin(kTokenKeys), std::end(kTokenKeys),
                                   [&key](const auto& entry) { return entry.first == key; });
  if (token != std::end(kTokenKeys)) {
    const std::string_view text = kSpecialTokens[static_cast<size_t>(token->second)];
    if (!is_special(value, text)) refuse(path, key, fmt::format("\"{}\" without stripping", text), value);
  } else if (key == "tokenizer_class") {
    if (std::find(std::begin(kClasses), std::end(kClasses), value) == std::end(kClasses)) {
      refuse(path, key, "a BERT tokenizer (BertTokenizer, BertTokenizerFast)", value);
    }
  } else if (key == "do_basic_tokenize") {
    if (value != true) refuse(path, key, "true", value);
  } else if (key == "split_special_tokens") {
    if (value != false) refuse(path, key, "false", value);
  } else if (key == "never_split" || key == "additional_special_tokens" || key == "extra_special_tokens") {
    if (!value.is_null() && !value.empty()) refuse(path, key, "null or empty", value);
  } else if (key == "added_tokens_decoder") {
    check_added_tokens(path, key, value);
  } else if (!is_option(key) && std::find(std::begin(kHarmless), std::end(kHarmless), key) == std::end(kHarmless)) {
    fail("tokenizer_config", "{}: every key must be known, got \"{}\"; remove it if it does not change the tokens",
         path, key);
  }
}

}  // namespace

TokenizerOptions read_tokenizer_config(const std::string& path) {
  const json config = io::read_json(path);
  if (!config.is_object()) fail("tokenizer_config", "{}: must be a JSON object, got {}", path, config.type_name());
  for (const auto& [key, value] : config.items()) check_key(path, key, value);
  const auto read_option = [&](const std::string& key, bool otherwise) {
    return config.contains(key) ? read_bool(path, key, config[key]) : otherwise;
  };
  TokenizerOptions options;
  const bool lower = read_option("do_lower_case", true);
  options.letter_case = lower ? Case::kLower : Case::kKeep;
  options.tokenize_chinese_chars = read_option("tokenize_chinese_chars", true);
  if (config.contains("strip_accents") && !config["strip_accents"].is_null()) {
    options.strip_accents = read_bool(path, "strip_accents", config["strip_accents"]);
  }
  if (config.contains("tokenizer_class") && config["tokenizer_class"] == "BertTokenizerLegacy") {
    options.pipeline = Pipeline::kBertLegacy;
    if (options.strip_accents.value_or(lower) != lower) {
      refuse(path, "strip_accents", "null or the value of \"do_lower_case\"", config["strip_accents"]);
    }
    if (!options.tokenize_chinese_chars) refuse(path, "tokenize_chinese_chars", "true", false);
  }
  return options;
}

std::string format_tokenizer_config(const TokenizerOptions& options) {
  const bool legacy = options.pipeline == Pipeline::kBertLegacy;
  nlohmann::ordered_json config = {{"tokenizer_class", legacy ? "BertTokenizerLegacy" : "BertTokenizer"},
                                   {"do_lower_case", options.letter_case == Case::kLower},
                                   {"strip_accents", nullptr},
                                   {"tokenize_chinese_chars", options.tokenize_chinese_chars}};
  if (options.strip_accents) config["strip_accents"] = *options.strip_accents;
  for (const auto& [key, special] : kTokenKeys) config[std::string(key)] = kSpecialTokens[static_cast<size_t>(special)];
  return config.dump(2) + "\n";
}

}  // namespace rf::text
