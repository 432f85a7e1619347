// Supported keys are read, keys that change the tokens and are not supported are errors, keys that cannot change them
// are listed and ignored, and every other key is a warning. As in `transformers`, special_tokens_map.json and
// added_tokens.json are used only if tokenizer_config.json lacks added_tokens_decoder.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "files/tokenizer_files.h"
#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/text/batch.h"

namespace rf::text {
namespace {

using nlohmann::json;

// Keys that cannot change the tokens: from PreTrainedTokenizerBase of transformers 3 to 5 (lengths, sides, files,
// templates of chats), sentence-transformers and the tokenizers library (saved calls: padding, truncation), unsloth and
// processors (images, tools), and copies of keys of config.json.
constexpr std::string_view kHarmless =
    "model_max_length vocab_size model_type architectures vocab_file merges_file padding truncation max_seq_length "
    "max_seq_len max_position_embeddings return_tensors return_token_type_ids return_attention_mask special_tokens "
    "model_specific_special_tokens model_name language unsloth_version tokenizer_type tokenizer_version "
    "trust_remote_code use_auth_token revision cache_dir device_map subfolder response_schema tool_parser_type "
    "image_token pad_token_id bos_token_id eos_token_id unk_token_id cls_token_id sep_token_id mask_token_id "
    "init_kwargs verbose do_pad word_tokenizer_type subword_tokenizer_type use_default_system_prompt max_len "
    "max_length padding_side truncation_side stride truncation_strategy pad_to_multiple_of pad_token_type_id "
    "name_or_path tokenizer_file full_tokenizer_file special_tokens_map_file use_fast model_input_names backend "
    "is_local local_files_only processor_class errors chat_template _commit_hash transformers_version "
    "vocab_type unk_id remove_space sp_model_file";

// Keys that change the tokens in some class of transformers, but are unsupported here.
constexpr std::string_view kOffKeys[] = {"sp_model_kwargs",  "fix_mistral_regex", "normalization",
                                         "add_dummy_prefix", "byte_fallback",     "dropout",
                                         "normalizer",       "pre_tokenizer",     "split_digits"};
// For "did you mean"; without the keys of special tokens.
constexpr std::string_view kReadKeys[] = {"tokenizer_class",   "do_lower_case",    "strip_accents",
                                          "trim_offsets",      "add_prefix_space", "tokenize_chinese_chars",
                                          "add_bos_token",     "add_eos_token",    "clean_up_tokenization_spaces",
                                          "do_basic_tokenize", "never_split",      "added_tokens_decoder"};

constexpr std::array<std::string_view, 2> kExtraKeys = {"extra_special_tokens", "additional_special_tokens"};

bool is_extra_key(std::string_view key) { return std::ranges::find(kExtraKeys, key) != kExtraKeys.end(); }

[[noreturn]] void refuse(const std::string& path, std::string_view key, std::string_view rule, const json& value) {
  fail("tokenizer_config", "{}: \"{}\" must be {}, got {}", path, key, rule, value.dump());
}

std::optional<bool> read_bool(const std::string& path, const std::string& key, const json& value) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_boolean()) refuse(path, key, "true or false", value);
  return value.get<bool>();
}

// A special token: its text, or an object with flags, or null.
void read_special(TokenizerConfig& config, const std::string& path, SpecialRole role, const json& value,
                  bool in_map = false) {
  AddedToken token;
  if (!value.is_null()) {
    token = read_added_token(value, path, std::string(config_key(role)));
    // Only in special_tokens_map.json is an object without "normalized" a special token from the start.
    if (in_map && value.is_object() && !value.contains("normalized")) token.normalized = false;
    token.special = true;
  }
  config.special[static_cast<size_t>(role)] = std::move(token);
}

// The tokens under the old name are used only if the new name is absent.
void read_extra_specials(TokenizerConfig& config, const std::string& path, const json& object) {
  for (const std::string_view key : kExtraKeys) {
    const json value = object.value(key, json());
    if (value.is_null()) continue;
    if (!value.is_array() && !(value.is_object() && value.empty())) refuse(path, key, "an array of tokens", value);
    if (key == kExtraKeys[1] && !config.extra.empty()) continue;
    for (const json& item : value) {
      AddedToken token = read_added_token(item, path, std::string(key));
      token.special = true;
      config.extra.push_back(std::move(token));
    }
  }
}

void read_added_tokens_decoder(TokenizerConfig& config, const std::string& key, const json& value) {
  if (!value.is_object()) refuse(config.path, key, "an object", value);
  config.has_added_tokens_decoder = true;
  config.added_tokens.emplace();
  for (const auto& [id, item] : value.items()) {
    AddedToken token = read_added_token(item, config.path, key);
    const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) refuse(config.path, key, "an object whose keys are ids", id);
    token.id = std::stoi(id);
    config.added_tokens->push_back(std::move(token));
  }
}

std::string read_text(const TokenizerConfig& config, const std::string& key, const json& value) {
  if (!value.is_string()) refuse(config.path, key, "a text", value);
  return value.get<std::string>();
}

// One of the pipelines that share a class.
Pipeline read_pipeline(const std::string& path, const json& value) {
  std::vector<std::string> names;
  for (const Pipeline pipeline : all_pipelines()) {
    const bool shared = std::ranges::any_of(all_pipelines(), [&](Pipeline other) {
      const PipelineEntry& entry = other.entry();
      return entry.classes.empty() && !entry.saved_class.empty() && entry.saved_class == pipeline.entry().saved_class;
    });
    if (!shared) continue;
    if (value == name(pipeline)) return pipeline;
    names.push_back(fmt::format("\"{}\"", name(pipeline)));
  }
  const std::vector<std::string_view> quoted(names.begin(), names.end());
  refuse(path, kPipelineKey, io::listed(quoted, "or"), value);
}

void read_class(TokenizerConfig& config, const std::string& key, const json& value) {
  if (value.is_null()) return;
  config.tokenizer_class = read_text(config, key, value);
  constexpr std::string_view kFast = "Fast";
  if (config.tokenizer_class.ends_with(kFast)) {
    config.tokenizer_class.resize(config.tokenizer_class.size() - kFast.size());
  }
}

void read_fixed(TokenizerConfig& config, const std::string& key, const json& value) {
  const bool is_empty = value.is_null() || value.empty();
  if (key == "do_basic_tokenize") {
    if (value != true) config.python_key = key;
  } else if (key == "never_split") {
    if (!is_empty) config.python_key = key;
  } else if (key == "split_special_tokens") {
    if (value != false) refuse(config.path, key, "false", value);
  } else if (key == "init_inputs") {
    if (!is_empty) refuse(config.path, key, "null or empty", value);
  } else if (key == "wordpieces_prefix") {
    if (value != "##") refuse(config.path, key, "\"##\"", value);
  } else if (std::ranges::find(kOffKeys, key) != std::end(kOffKeys)) {
    const bool off =
        value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
    if (!off) refuse(config.path, key, "absent, null, false or empty, since it changes the tokens", value);
  } else if (!has_word(kHarmless, key)) {
    std::vector<std::string_view> known(std::begin(kReadKeys), std::end(kReadKeys));
    for (const SpecialRole role : kSpecialRoles) known.push_back(config_key(role));
    const std::string_view near = io::nearest_name(key, known);
    io::warn(config.path, "keys must be known, and one that is not is ignored, got {}: {}{}", io::printable(key),
             io::shown(value), near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
}

constexpr std::pair<std::string_view, std::optional<bool> TokenizerConfig::*> kSwitches[] = {
    {"do_lower_case", &TokenizerConfig::do_lower_case},
    {"strip_accents", &TokenizerConfig::strip_accents},
    {"tokenize_chinese_chars", &TokenizerConfig::tokenize_chinese_chars},
    {"add_prefix_space", &TokenizerConfig::add_prefix_space},
    {"trim_offsets", &TokenizerConfig::trim_offsets},
    {"clean_up_tokenization_spaces", &TokenizerConfig::clean_up_tokenization_spaces},
    {"legacy", &TokenizerConfig::legacy},
    {"add_bos_token", &TokenizerConfig::add_bos_token},
    {"add_eos_token", &TokenizerConfig::add_eos_token},
    {"keep_accents", &TokenizerConfig::keep_accents},
    {"split_by_punct", &TokenizerConfig::split_by_punct}};

// AutoTokenizer is ["module.Class", "module.ClassFast"], where a class may be null, or one class.
bool is_qwens_own(const json& auto_map) {
  const json named = auto_map.is_object() ? auto_map.value("AutoTokenizer", json()) : json();
  const auto matches = [](const json& name) {
    return name.is_string() && name.get<std::string>().find("tokenization_qwen.Qwen2Tokenizer") != std::string::npos;
  };
  return named.is_array() ? std::ranges::any_of(named, matches) : matches(named);
}

void read_key(TokenizerConfig& config, const std::string& key, const json& value) {
  for (const auto& [name, field] : kSwitches) {
    if (key != name) continue;
    config.*field = read_bool(config.path, key, value);
    return;
  }
  const auto* role = std::ranges::find(kSpecialRoles, key, config_key);
  if (role != kSpecialRoles.end()) {
    read_special(config, config.path, *role, value);
  } else if (key == "tokenizer_class") {
    read_class(config, key, value);
  } else if (key == kPipelineKey) {
    config.pipeline = read_pipeline(config.path, value);
  } else if (key == kDictionaryKey) {
    config.dictionary_hash = read_text(config, key, value);
  } else if (key == "extra_ids") {
    constexpr int64_t kMaxExtra = 1 << 16;
    if (!value.is_number_unsigned() || value > kMaxExtra) refuse(config.path, key, "a number up to 65536", value);
    config.extra_ids = value.get<int64_t>();
  } else if (key == "auto_map") {
    config.is_qwens_own = is_qwens_own(value);
  } else if (key == "added_tokens_decoder") {
    read_added_tokens_decoder(config, key, value);
  } else if (!is_extra_key(key)) {
    read_fixed(config, key, value);
  }
}

json read_object(const std::filesystem::path& path) {
  json value = io::read_json(path.string());
  if (!value.is_object()) {
    fail("tokenizer_config", "{}: must be a JSON object, got {}", path.string(), value.type_name());
  }
  return value;
}

void read_special_tokens_map(TokenizerConfig& config, const std::filesystem::path& path) {
  const json map = read_object(path);
  for (const auto& [key, value] : map.items()) {
    const auto* role = std::ranges::find(kSpecialRoles, key, config_key);
    if (role != kSpecialRoles.end()) {
      read_special(config, path.string(), *role, value, true);
    } else if (!is_extra_key(key)) {
      refuse(path.string(), key, "absent: this program does not know this special token", value);
    }
  }
  read_extra_specials(config, path.string(), map);
}

void read_added_tokens_file(TokenizerConfig& config, const std::filesystem::path& path) {
  const json map = read_object(path);
  config.added_tokens.emplace();
  std::unordered_set<std::string_view> specials;
  for (const AddedToken& token : config.extra) specials.insert(token.content);
  for (const auto& token : config.special) {
    if (token) specials.insert(token->content);
  }
  for (const auto& [content, id] : map.items()) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) refuse(path.string(), content, "an id", id);
    const bool special = specials.contains(content);
    config.added_tokens->push_back(
        {.content = content, .id = id.get<int32_t>(), .special = special, .normalized = !special});
  }
}

// "right" or "left" in tokenizer_config.json, capitalised in tokenizer.json.
Side side_of(const json& value, std::string_view right, std::string_view left, const char* where,
             const std::string& path, const std::string& key) {
  if (value == right) return Side::kRight;
  if (value == left) return Side::kLeft;
  fail(where, "{}: \"{}\" must be {} or {}, got {}", path, key, right, left, io::shown(value));
}

// The "direction" of a section of tokenizer.json.
Side direction_of(const json& file, const std::string& section, const std::string& path) {
  const json found = file.is_object() ? file.value(section, json()) : json();
  if (!found.is_object() || !found.contains("direction")) return Side::kRight;
  return side_of(found["direction"], "Right", "Left", "tokenizer_json", path, section + ".direction");
}

}  // namespace

bool has_word(std::string_view words, std::string_view word) {
  return std::ranges::any_of(std::views::split(words, ' '), [&](auto each) { return std::ranges::equal(each, word); });
}

AddedToken read_added_token(const json& value, const std::string& where, const std::string& key) {
  if (value.is_string()) return {.content = value.get<std::string>(), .special = true};
  if (!value.is_object() || !value.contains("content") || !value["content"].is_string()) {
    refuse(where, key, "a token, as text or as an object with \"content\"", value);
  }
  AddedToken token{.content = value["content"].get<std::string>()};
  const auto flag = [&](const char* name, bool otherwise) {
    if (!value.contains(name)) return otherwise;
    return read_bool(where, key + "." + name, value[name]).value_or(otherwise);
  };
  token.special = flag("special", false);
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.normalized = flag("normalized", !token.special);
  for (const auto& [name, unused] : value.items()) {
    constexpr std::string_view kKeys[] = {"content", "special", "single_word", "lstrip",
                                          "rstrip",  "id",      "normalized",  "__type"};
    if (std::ranges::find(kKeys, name) == std::end(kKeys))
      refuse(where, key, "a token without \"" + name + "\"", value);
  }
  return token;
}

nlohmann::ordered_json format_added_token(const AddedToken& token) {
  return {{"content", token.content}, {"single_word", token.single_word}, {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},   {"normalized", token.normalized},   {"special", token.special}};
}

TokenizerConfig read_tokenizer_config(const std::filesystem::path& model_dir) {
  TokenizerConfig config;
  const std::filesystem::path path = model_dir / "tokenizer_config.json";
  config.path = path.string();
  if (io::has_file(path.string())) {
    const json object = read_object(path);
    for (const auto& [key, value] : object.items()) read_key(config, key, value);
    read_extra_specials(config, config.path, object);
  }
  if (config.has_added_tokens_decoder) return config;
  const std::filesystem::path map = model_dir / "special_tokens_map.json", added = model_dir / "added_tokens.json";
  if (io::has_file(map.string())) read_special_tokens_map(config, map);
  if (io::has_file(added.string())) read_added_tokens_file(config, added);
  return config;
}

// Keys of tokenizer_config.json and, for a missing side, the sections of tokenizer.json, which contain the last
// settings of a tokenizer that was used before it was saved.
RowSettings read_row_settings(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / "tokenizer_config.json").string();
  RowSettings settings;
  std::optional<Side> truncation_side, padding_side;
  if (io::has_file(path)) {
    const json config = io::read_json(path);
    if (!config.is_object()) return {};  // Tokenizer::load refuses it
    const auto limit = config.find("model_max_length");
    const bool is_given = limit != config.end() && !limit->is_null();
    if (is_given && (!limit->is_number() || *limit < 1)) refuse(path, "model_max_length", "a number from 1 on", *limit);
    // 1e30 stands for no limit.
    if (is_given && limit->is_number_integer() && *limit <= INT64_MAX) settings.max_length = limit->get<int64_t>();
    const auto side = [&](const char* key) -> std::optional<Side> {
      const json value = config.value(key, json());
      if (value.is_null()) return std::nullopt;
      return side_of(value, "right", "left", "tokenizer_config", path, key);
    };
    // These classes of transformers 5 return token types only if the file names them.
    const auto without = {"TokenizersBackend", "PreTrainedTokenizerFast", "AlbertTokenizer", "AlbertTokenizerFast"};
    const json inputs = config.value("model_input_names", json()), type = config.value("tokenizer_class", json());
    settings.token_types = inputs.is_array() ? std::ranges::find(inputs, json("token_type_ids")) != inputs.end()
                                             : std::ranges::find(without, type) == without.end();
    truncation_side = side("truncation_side");
    padding_side = side("padding_side");
  }
  if (!truncation_side || !padding_side) {
    const std::string fast = (std::filesystem::path(model_dir) / "tokenizer.json").string();
    const json file = io::has_file(fast) ? io::read_json(fast) : json();
    if (!truncation_side) truncation_side = direction_of(file, "truncation", fast);
    if (!padding_side) padding_side = direction_of(file, "padding", fast);
  }
  settings.truncation_side = *truncation_side;
  settings.padding_side = *padding_side;
  return settings;
}

}  // namespace rf::text
