// Byte pairs with ranks in place of merges (spec R-TOK-13): a pair has the rank of the token that it makes.
//
//   tiktoken      a line for each token: base64, a space and the rank, which is the id. The program that reads the file
//                 defines the expression and the special tokens: find_rank_file() has them for published files
//   tekken.json   Mistral's: config (pattern, default_vocab_size, default_num_special_tokens), vocab (rank, token_bytes
//                 in base64), special_tokens (rank, token_str, is_control). The ids of the special tokens come first
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <unordered_map>

#include "files/base64.h"
#include "files/tokenizer_files.h"
#include "models/byte_alphabet.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "splitters/expression.h"
#include "splitters/published_expressions.h"

namespace rf::text {
namespace {

using nlohmann::json;

constexpr const char* kRanksWhere = "tokenizer";
constexpr size_t kMostTokenBytes = 256;

// The special tokens follow the ranks; "" is an id without a token.
struct RankFile {
  std::string_view name, expression;
  size_t ranks;  // of the published file
  bool nfc;
  std::vector<std::string> specials;
  std::string_view bos, eos;
};

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> found;
  for (const auto each : std::views::split(text, ' ')) found.emplace_back(each.begin(), each.end());
  return found;
}

std::vector<std::string> numbered(std::string_view names, std::string_view prefix, int first, int last) {
  std::vector<std::string> all = words(names);
  for (int i = first; i <= last; ++i) all.push_back(fmt::format("<|{}{}|>", prefix, i));
  return all;
}

std::vector<std::string> with_end_of_prompt(std::string_view names) {
  std::vector<std::string> all = words(names);
  all.resize(20);
  all.emplace_back("<|endofprompt|>");
  return all;
}

const RankFile* find_rank_file(std::string_view name) {
  constexpr std::string_view kEnd = "<|endoftext|>";
  // Names of Llama 3.1; Llama 3 calls some of the tokens reserved.
  constexpr std::string_view kLlama =
      "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
      "<|finetune_right_pad_id|> <|reserved_special_token_2|> <|start_header_id|> <|end_header_id|> <|eom_id|> "
      "<|eot_id|> <|python_tag|>";
  static const std::vector<RankFile> kFiles = {
      {kLlamaRanks, kLlama3Expression, 128000, false, numbered(kLlama, "reserved_special_token_", 3, 247),
       "<|begin_of_text|>", "<|end_of_text|>"},
      {"qwen.tiktoken", kQwen2Expression, 151643, true,
       numbered("<|endoftext|> <|im_start|> <|im_end|>", "extra_", 0, 204), "", kEnd},
      {"cl100k_base.tiktoken", kCl100kExpression, 100256, false,
       with_end_of_prompt(" <|endoftext|> <|fim_prefix|> <|fim_middle|> <|fim_suffix|>"), "", kEnd},
      {"o200k_base.tiktoken", kO200kExpression, 199998, false, with_end_of_prompt(" <|endoftext|>"), "", kEnd},
      {"r50k_base.tiktoken", kGpt2Expression, 50256, false, words(kEnd), "", kEnd}};
  const auto found = std::ranges::find(kFiles, name, &RankFile::name);
  return found == kFiles.end() ? nullptr : &*found;
}

// nullopt: the text is not Base64.
std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  DecodedBase64 decoded = decode_base64(text);
  return decoded.wrong ? std::nullopt : std::optional(std::move(decoded.bytes));
}

// The tokens by rank, and what follows from them.
class Ranks {
 public:
  Ranks(const std::string& path, size_t count) : path_(path), tokens_(count) {
    if (count == 0) fail(kRanksWhere, "{}: a file of ranks must have tokens, got none", path);
  }

  // place: of the token in the file, for messages.
  void add(std::string_view base64, int64_t rank, const std::string& place) {
    std::optional<std::string> bytes = from_base64(base64);
    if (!bytes || bytes->empty() || bytes->size() > kMostTokenBytes) {
      fail(kRanksWhere, "{}: a token must be base64 of 1 to {} bytes, got {} in {}", path_, kMostTokenBytes,
           io::printable(base64), place);
    }
    if (rank < 0 || rank >= std::ssize(tokens_) || !tokens_[static_cast<size_t>(rank)].empty()) {
      fail(kRanksWhere, "{}: the ranks of {} tokens must be 0 to {}, each once, got {} in {}", path_, tokens_.size(),
           tokens_.size() - 1, rank, place);
    }
    if (!ranks_.emplace(*bytes, rank).second)
      fail(kRanksWhere, "{}: tokens must be unique, got {} again in {}", path_, io::printable(*bytes), place);
    tokens_[static_cast<size_t>(rank)] = std::move(*bytes);
  }

  // before: special tokens, whose ids come first.
  TokenizerJson finish(std::vector<std::string> before, std::string expression, bool nfc) const {
    for (int byte = 0; byte < 256; ++byte) {
      if (!ranks_.contains(std::string(1, static_cast<char>(byte))))
        fail(kRanksWhere, "{}: each of the 256 bytes must have a rank, got none for {}", path_, byte);
    }
    try {
      static_cast<void>(Expression(expression));
    } catch (const Error& error) {
      fail(kRanksWhere, "{}: pattern must be an expression that this program computes: {}", path_, error.what());
    }
    TokenizerJson out;
    out.tokens = std::move(before);
    for (const std::string& token : tokens_) {
      out.tokens.push_back(letters_of(token));
      add_merges(token, out.merges);
    }
    out.options.pipeline = Pipeline::kByteLevelBpe;
    out.options.decoding.join = DecodingOptions::Join::kBytes;
    out.options.byte_level = {.nfc = nfc, .splits = {}, .use_regex = false, .ignore_merges = true};
    out.options.byte_level.splits.push_back({SplitStep::Kind::kExpression, std::move(expression)});
    return out;
  }

 private:
  // All pairs that make the token, in the order of transformers' TikTokenConverter.
  void add_merges(const std::string& token, std::vector<Merge>& merges) const {
    std::vector<std::pair<int64_t, size_t>> found;  // the rank of the left part, and its bytes
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ranks_.find(token.substr(0, at));
      if (left != ranks_.end() && ranks_.contains(token.substr(at))) found.emplace_back(left->second, at);
    }
    std::ranges::sort(found);
    for (const auto& [rank, at] : found)
      merges.emplace_back(letters_of(token.substr(0, at)), letters_of(token.substr(at)));
  }

  const std::string& path_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int64_t> ranks_;
};

// Adds a special token that the model has.
void add_special(TokenizerJson& out, size_t id, bool special) {
  out.added.push_back({.content = out.tokens[id], .id = static_cast<int32_t>(id), .special = special});
}

// A key of tekken.json; throws Error for another type.
template <typename T>
T tekken_value(const json& object, const char* key, const std::string& path, const std::string& place) {
  constexpr bool kIsText = std::is_same_v<T, std::string>;
  const bool has = object.is_object() && object.contains(key);
  if (!has || !(kIsText ? object[key].is_string() : object[key].is_number_integer())) {
    fail(kRanksWhere, "{}: {} must have {}, {}, got {}", path, place, key, kIsText ? "a text" : "an integer",
         has ? io::shown(object[key]) : "none");
  }
  return object[key].get<T>();
}

// Those of files up to version 7, which may leave them to the program.
json default_tekken_specials() {
  json specials = json::array();
  for (const std::string& name :
       words("<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] "
             "[TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] "
             "[/SYSTEM_PROMPT] [TOOL_CONTENT]")) {
    specials.push_back({{"rank", specials.size()}, {"token_str", name}, {"is_control", true}});
  }
  return specials;
}

}  // namespace

const char* rank_file(const std::filesystem::path& dir) {
  const auto is_one = [&](std::string_view name) {
    const std::string path = (dir / name).string();
    if ((name != kTekkenFile && find_rank_file(name) == nullptr) || !io::has_file(path)) return false;
    if (name != kLlamaRanks) return true;
    const std::string bytes = io::read_file(path);  // or SentencePiece's
    const size_t end = bytes.find(' ');
    return end != std::string::npos && from_base64(std::string_view(bytes).substr(0, end));
  };
  const char* found = nullptr;
  for (const std::string_view name : kTokenizerFiles) {
    if (!is_one(name)) continue;
    if (found != nullptr)
      fail(kRanksWhere, "{}: one file of ranks must be there, got {} and {}", dir.string(), found, name);
    found = name.data();
  }
  return found;
}

TokenizerJson read_ranks(const std::string& path, RankSpecials specials) {
  const std::string name = std::filesystem::path(path).filename().string(), bytes = io::read_file(path);
  std::vector<std::pair<std::string_view, size_t>> lines;  // and their numbers, without empty ones
  size_t number = 0;
  for (std::string_view rest = bytes; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.emplace_back(line, number + 1);
  }
  Ranks ranks(path, lines.size());
  for (const auto& [line, place] : lines) {
    const size_t space = line.find(' ');
    int64_t rank = -1;
    const char* const end = line.data() + line.size();
    const bool has_rank = space != std::string_view::npos && space + 1 < line.size();
    const auto read = has_rank ? std::from_chars(line.data() + space + 1, end, rank) : std::from_chars_result{};
    if (!has_rank || read.ptr != end || read.ec != std::errc()) {
      fail(kRanksWhere, "{}: a line must be a token in base64, a space and its rank, got {} in line {}", path,
           io::printable(line), place);
    }
    ranks.add(line.substr(0, space), rank, fmt::format("line {}", place));
  }
  const RankFile& known = *find_rank_file(name);
  TokenizerJson out = ranks.finish({}, std::string(known.expression), known.nfc);
  if (specials == RankSpecials::kOfConfig) return out;
  if (lines.size() != known.ranks) {
    io::warn(kRanksWhere, "{}: the published file has {} ranks, got {}: special tokens and the expression may differ",
             path, known.ranks, lines.size());
  }
  for (const std::string& special : known.specials) {
    const size_t id = out.tokens.size();
    out.tokens.push_back(special.empty() ? fmt::format("<|unused_{}|>", id) : special);
    if (!special.empty()) add_special(out, id, true);
  }
  out.special.bos = known.bos;
  out.special.eos = known.eos;
  return out;
}

TokenizerJson read_tekken(const std::string& path) {
  const json file = io::read_json(path);
  const json none, &config = file.is_object() && file.contains("config") ? file["config"] : none;
  const auto size = tekken_value<int64_t>(config, "default_vocab_size", path, "config");
  const auto special_count = tekken_value<int64_t>(config, "default_num_special_tokens", path, "config");
  const json vocab = file.value("vocab", json());
  const bool has_specials = file.contains("special_tokens") && !file["special_tokens"].is_null();
  if (!has_specials && !has_word("v1 v2 v3 v7", tekken_value<std::string>(config, "version", path, "config")))
    fail(kRanksWhere, "{}: special_tokens must be given after version v7, got none", path);
  const json specials = has_specials ? file["special_tokens"] : default_tekken_specials();
  for (const auto& [name, list] : {std::pair("vocab", &vocab), std::pair("special_tokens", &specials)}) {
    if (!list->is_array()) fail(kRanksWhere, "{}: {} must be a list, got another value", path, name);
  }
  constexpr int64_t kMostSpecials = int64_t{1} << 20;
  if (special_count < std::ssize(specials) || special_count > kMostSpecials) {
    fail(kRanksWhere, "{}: default_num_special_tokens must be from the {} special tokens to {}, got {}", path,
         specials.size(), kMostSpecials, special_count);
  }
  if (size <= special_count || size - special_count > std::ssize(vocab)) {
    fail(kRanksWhere, "{}: default_vocab_size must be above the {} special tokens by at most the {} of vocab, got {}",
         path, special_count, vocab.size(), size);
  }
  std::vector<std::string> names(static_cast<size_t>(special_count));
  std::vector<bool> controls(names.size(), true);
  for (size_t i = 0; i < specials.size(); ++i) {
    const std::string place = fmt::format("special_tokens[{}]", i);
    const auto rank = tekken_value<int64_t>(specials[i], "rank", path, place);
    std::string name = tekken_value<std::string>(specials[i], "token_str", path, place);
    if (rank < 0 || rank >= std::ssize(specials) || !names[static_cast<size_t>(rank)].empty() || name.empty())
      fail(kRanksWhere, "{}: special_tokens must have a name and the ranks 0 to {}, each once, got {} and {}", path,
           specials.size() - 1, io::printable(name), rank);
    const json control = specials[i].value("is_control", json(true));
    if (!control.is_boolean()) fail(kRanksWhere, "{}: {} must have is_control, true or false", path, place);
    controls[static_cast<size_t>(rank)] = control.get<bool>();
    names[static_cast<size_t>(rank)] = std::move(name);
  }
  for (size_t i = specials.size(); i < names.size(); ++i) names[i] = fmt::format("<SPECIAL_{}>", i);
  Ranks ranks(path, static_cast<size_t>(size - special_count));
  for (size_t i = 0; i < static_cast<size_t>(size - special_count); ++i) {
    const std::string place = fmt::format("vocab[{}]", i);
    ranks.add(tekken_value<std::string>(vocab[i], "token_bytes", path, place),
              tekken_value<int64_t>(vocab[i], "rank", path, place), place);
  }
  TokenizerJson out =
      ranks.finish(std::move(names), tekken_value<std::string>(config, "pattern", path, "config"), false);
  for (size_t i = 0; i < controls.size(); ++i) add_special(out, i, controls[i]);
  const auto known = [&](const char* name) {
    return std::ranges::find(out.added, name, &AddedToken::content) == out.added.end() ? "" : name;
  };
  out.special.bos = known("<s>");
  out.special.eos = known("</s>");
  out.special.unk = known("<unk>");
  out.special.pad = known("<pad>");
  return out;
}

}  // namespace rf::text
