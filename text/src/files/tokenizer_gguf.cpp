// The tokenizer of a GGUF file, whose tokens, merges and special tokens are arrays of its keys (spec R-TOK-12 for
// vocabularies of SentencePiece).
//
//   tokenizer.ggml.model      gpt2: byte-level BPE; llama: SentencePiece's BPE; t5: Unigram; bert: WordPiece; others
//                             are refused
//   tokenizer.ggml.pre        the expression that splits a text into words: llama.cpp names them after models
//   tokenizer.ggml.tokens     by id, in the byte alphabet
//   tokenizer.ggml.token_type by id: 1 normal, 3 control, 4 defined by a user, 5 unused
//   tokenizer.ggml.merges     "left right", in order of rank
//   tokenizer.ggml.scores     by id, of SentencePiece's models; add_space_prefix and precompiled_charsmap are of their
//                             normalizer
//   tokenizer.ggml.normalizer.lowercase, .strip_accents  of WordPiece; absent: true, and as lowercase
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "files/sentencepiece_classes.h"
#include "files/tokenizer_files.h"
#include "models/byte_pair_model.h"
#include "rf/io/error.h"
#include "rf/io/gguf.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "splitters/published_expressions.h"

namespace rf::text {
namespace {

using nlohmann::json;

constexpr int64_t kNormalToken = 1, kControlToken = 3, kUserToken = 4;

// Names of a pre-tokenizer in GGUF files, and its settings in the models' tokenizer.json.
struct KnownPre {
  std::vector<std::string_view> names;
  std::vector<std::string_view> expressions = {};  // kDigits: the step Digits
  bool use_regex = false;                          // then GPT-2's expression
  bool ignore_merges = false, nfc = false;
  bool adds_bos = false;  // without tokenizer.ggml.add_bos_token
  bool adds_eos = false;  // the same of add_eos_token
};
constexpr std::string_view kDigits = "Digits";
const std::vector<KnownPre>& known_pres() {
  static const std::vector<std::string_view> deep_seek = {kDeepSeekDigits, kDeepSeekHan, kDeepSeekWords};
  static const std::vector<std::string_view> coder = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekOtherWords,
                                                      kDigits};
  static const std::vector<std::string_view> letters = {"[\r\n]",  kDeepSeekLetters,    kDeepSeekPunctuation,
                                                        R"(\s+$)", kDeepSeekOtherWords, kDigits};
  static const std::vector<KnownPre> kPres = {
      {.names = {"gpt-2", "olmo", "phi-2", "gigachat", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "a.x-4.0",
                 "mellum", "exaone4", "jais", "trillion", "granite-docling"},
       .use_regex = true},
      {.names = {"mpt", "modern-bert"}, .use_regex = true, .nfc = true},
      {.names = {"roberta-bpe", "jina-v1-en", "jina-v2-code"}, .use_regex = true, .adds_bos = true, .adds_eos = true},
      {.names = {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
       .expressions = {kDigits},
       .use_regex = true},
      {.names = {"command-r"}, .expressions = {kDigits}, .use_regex = true, .nfc = true},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                 "jina-v5-nano"},
       .expressions = {kLlama3Expression},
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, .expressions = {kLlama3Expression}},
      {.names = {"jais-2"}, .expressions = {kJais2Expression}},
      {.names = {"minicpm5"}, .expressions = {kDeepSeekDigits, kMiniCpm5Expression}, .ignore_merges = true},
      {.names = {"qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"},
       .expressions = {kQwen2Expression},
       .nfc = true},
      {.names = {"qwen35"}, .expressions = {kQwen35Expression}, .nfc = true},
      {.names = {"stablelm2", "hunyuan", "solar-open", "grok-2"}, .expressions = {kQwen2Expression}},
      {.names = {"laguna"}, .expressions = {kLines, kQwen2Expression}},
      {.names = {"seed-coder"}, .expressions = {kSeedCoderExpression}},
      {.names = {"ufakzeka"}, .expressions = {kUfakzekaExpression}},
      {.names = {"bailingmoe", "bailingmoe2", "llada-moe"}, .expressions = {kBailingExpression}},
      {.names = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, .expressions = {kO200kExpression}},
      {.names = {"granite-embed-multi-97m"}, .expressions = {kO200kExpression}, .ignore_merges = true},
      {.names = {"youtu"}, .expressions = {kYoutuScripts, kYoutuExpression}, .ignore_merges = true},
      {.names = {"tekken"}, .expressions = {kTekkenExpression}, .ignore_merges = true, .adds_bos = true},
      {.names = {"bloom", "poro-chat", "gpt3-finnish"}, .expressions = {kBloomExpression}},
      {.names = {"viking"}, .expressions = {kBloomExpression, kDigits}},
      {.names = {"falcon"}, .expressions = {kFalconPunctuation, kGpt2Expression, kThreeDigits}},
      {.names = {"default"}, .expressions = {kDefaultPunctuation, kGpt2Expression, R"(\p{N}+)", kThreeDigits}},
      {.names = {"chameleon"},
       .expressions = {kChameleonSentinels, kChameleonImages, kChameleonSpaces, kDigits, kChameleonPunctuation},
       .use_regex = true,
       .adds_bos = true},
      {.names = {"deepseek-llm"}, .expressions = letters},
      {.names = {"deepseek-coder"}, .expressions = coder},
      {.names = {"spark2_5"}, .expressions = {kDeepSeekDigits, kDeepSeekHan, kSparkWords, kDigits}},
      {.names = {"deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"}, .expressions = deep_seek}};
  return kPres;
}

class GgufTokenizer {
 public:
  explicit GgufTokenizer(const std::string& path) : path_(path), file_(path) {}

  TokenizerParts read() {
    const std::string model = text("model");
    const bool is_pieces = model == "llama" || model == "t5";
    if (model != "gpt2" && model != "bert" && !is_pieces) {
      fail(path_, "tokenizer.ggml.model must be bert, gpt2, llama or t5, got {}", shown(model));
    }
    tokens_ = file_.strings("tokenizer.ggml.tokens");
    if (tokens_.empty()) fail(path_, "tokenizer.ggml.tokens must have tokens, got none");
    types_ = token_types();
    if (is_pieces) return read_pieces(model == "t5");
    if (model == "bert") return read_word_pieces();
    TokenizerOptions options;
    options.pipeline = Pipeline::kByteLevelBpe;
    options.decoding.join = DecodingOptions::Join::kBytes;
    const KnownPre& pre = known_pre();
    adds_bos_ = pre.adds_bos;
    adds_eos_ = pre.adds_eos;
    options.byte_level = {.nfc = pre.nfc, .splits = {}, .use_regex = pre.use_regex, .ignore_merges = pre.ignore_merges};
    for (const std::string_view each : pre.expressions) {
      const bool digits = each == kDigits;
      options.byte_level.splits.push_back({digits ? SplitStep::Kind::kDigits : SplitStep::Kind::kExpression,
                                           digits ? std::string() : std::string(each)});
    }
    return parts(std::move(options), merges());
  }

 private:
  TokenizerParts parts(TokenizerOptions options, std::vector<Merge> merges,
                       SpecialNames names = kNoSpecialNames) const {
    for (const auto& [role, key] :
         {std::pair(SpecialRole::kBos, "bos_token_id"), std::pair(SpecialRole::kEos, "eos_token_id"),
          std::pair(SpecialRole::kUnk, "unknown_token_id"), std::pair(SpecialRole::kPad, "padding_token_id"),
          std::pair(SpecialRole::kSep, "seperator_token_id"), std::pair(SpecialRole::kMask, "mask_token_id")}) {
      if (const auto id = token_id(key)) name_of(names, role) = tokens_[static_cast<size_t>(*id)];
    }
    std::vector<AddedToken> added = added_tokens();
    SequenceTemplate frame = sequence_template();
    return {.vocabulary = Vocabulary(tokens_, std::move(names), Vocabulary::kAll, path_),
            .options = std::move(options),
            .added = std::move(added),
            .merges = std::move(merges),
            .sequence_template = std::move(frame)};
  }
  // The file's tokens mark the beginning of a word with "▁", and lack the "##" of WordPiece.
  TokenizerParts read_word_pieces() {
    for (size_t id = 0; id < tokens_.size(); ++id) {
      std::string& token = tokens_[id];
      const bool is_special = types_[id] == kControlToken || (token.starts_with("[") && token.ends_with("]"));
      if (is_special && !token.starts_with(kSpaceMarker)) continue;
      token = token.starts_with(kSpaceMarker) ? token.substr(kSpaceMarker.size()) : "##" + token;
    }
    TokenizerOptions options;
    options.letter_case = flag("normalizer.lowercase", true) ? Case::kLower : Case::kKeep;
    if (find("normalizer.strip_accents") != nullptr) options.strip_accents = flag("normalizer.strip_accents", true);
    TokenizerParts out = parts(std::move(options), {}, SpecialNames());
    const auto id_of = [&](const char* key, const std::string& token) {
      const auto id = token_id(key);
      return id ? *id : out.vocabulary.find(token);
    };
    const int32_t cls = id_of("bos_token_id", "[CLS]"), sep = id_of("seperator_token_id", "[SEP]");
    if (cls < 0 || sep < 0)
      fail(path_, "tokenizer.ggml.{} must be given, got none", cls < 0 ? "bos_token_id" : "seperator_token_id");
    out.sequence_template = bert_template(cls, sep);
    return out;
  }
  // A vocabulary of SentencePiece, as transformers' class for it.
  TokenizerParts read_pieces(bool is_unigram) {
    const json architecture = file_.metadata().value("general.architecture", json());
    const std::string family = architecture.is_string() ? architecture.get<std::string>() : std::string();
    const bool is_gemma = family.starts_with("gemma"), is_t5 = is_unigram && family.starts_with("t5");
    const std::vector<float> scores = file_.reals("tokenizer.ggml.scores");
    if (scores.size() != tokens_.size()) {
      fail(path_, "tokenizer.ggml.scores must be one for each of the {} tokens, got {}", tokens_.size(), scores.size());
    }
    int64_t extra_id = 100;  // llama.cpp writes T5's as [PAD..]
    SentencePieces pieces;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      std::string& token = tokens_[id];
      if (is_t5 && extra_id > 0 && token.starts_with("[PAD") && token.ends_with("]")) {
        token = fmt::format("<extra_id_{}>", --extra_id);
      } else if (is_gemma && token.find_first_not_of(' ') == std::string::npos) {
        std::string markers;
        for (size_t i = 0; i < token.size(); ++i) markers += kSpaceMarker;
        token = std::move(markers);
        types_[id] = kNormalToken;  // which merges make
      }
      pieces.push_back({.text = token, .score = scores[id]});
    }
    TokenizerConfig config;
    config.add_prefix_space = flag("add_space_prefix", true);
    UnigramOptions unigram;
    if (std::string map = file_.array_bytes("tokenizer.ggml.precompiled_charsmap"); !map.empty()) {
      unigram.normalizers.push_back({.kind = NormalizerStep::Kind::kPrecompiled, .text = std::move(map)});
    }
    adds_bos_ = !is_unigram;
    adds_eos_ = is_unigram;
    const SentencePieceClass& known = *find_sentencepiece_class(is_t5        ? "T5Tokenizer"
                                                                : is_unigram ? "XLMRobertaTokenizer"
                                                                : is_gemma   ? "GemmaTokenizer"
                                                                             : "LlamaTokenizer");
    // Gemma's scores do not follow the order of its merges.
    TokenizerJson read = tokenizer_of_pieces(std::move(pieces), is_gemma ? MergeOrder::kByPlace : MergeOrder::kByScore,
                                             known, config, std::move(unigram));
    if (family == "phi3") {
      read.options.byte_fallback.in_normalizer = true;
      read.options.byte_fallback.prefix = ByteFallbackOptions::Prefix::kEven;
    }
    SpecialNames names = known.special;
    for (const SpecialRole role : kSpecialRoles) {
      std::string& token = name_of(names, role);
      if (std::ranges::find(tokens_, token) == tokens_.end()) token.clear();
    }
    return parts(std::move(read.options), std::move(read.merges), std::move(names));
  }
  const json* find(const char* key) const {
    const auto found = file_.metadata().find(std::string("tokenizer.ggml.") + key);
    return found == file_.metadata().end() ? nullptr : &*found;
  }
  std::string text(const char* key) const {
    const json* value = find(key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  }
  bool flag(const char* key, bool otherwise) const {
    const json* value = find(key);
    return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
  }
  static std::string shown(const std::string& text) { return text.empty() ? "none" : io::printable(text); }

  const KnownPre& known_pre() const {
    const std::string pre = text("pre");
    const auto found = std::ranges::find_if(known_pres(), [&pre](const KnownPre& known) {
      return std::ranges::find(known.names, pre) != known.names.end();
    });
    if (found == known_pres().end()) {
      std::vector<std::string_view> names;
      for (const KnownPre& known : known_pres()) names.insert(names.end(), known.names.begin(), known.names.end());
      fail(path_, "tokenizer.ggml.pre must be {}, got {}", io::listed(names, "or"), shown(pre));
    }
    return *found;
  }

  std::optional<int32_t> token_id(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || *value < 0 || *value >= tokens_.size()) {
      fail(path_, "tokenizer.ggml.{} must be a token from 0 to {}, got {}", key, tokens_.size() - 1, value->dump());
    }
    return value->get<int32_t>();
  }

  std::vector<int64_t> token_types() const {
    std::vector<int64_t> types = file_.integers("tokenizer.ggml.token_type");
    if (!types.empty() && types.size() != tokens_.size()) {
      fail(path_, "tokenizer.ggml.token_type must be one for each of the {} tokens, got {}", tokens_.size(),
           types.size());
    }
    types.resize(tokens_.size(), kNormalToken);
    return types;
  }

  std::vector<AddedToken> added_tokens() const {
    const std::vector<int32_t> end_ids = io::gguf_end_tokens(file_);
    std::vector<AddedToken> added;
    for (size_t i = 0; i < types_.size(); ++i) {
      const auto id = static_cast<int32_t>(i);
      // llama.cpp treats an end of text as a control token, whatever its type.
      const bool ends = io::is_gguf_end_text(tokens_[i]) && std::ranges::find(end_ids, id) != end_ids.end();
      const bool special = types_[i] == kControlToken || ends;
      if (!special && types_[i] != kUserToken) continue;
      added.push_back({.content = tokens_[i], .id = id, .special = special});
    }
    return added;
  }

  SequenceTemplate sequence_template() const {
    using Part = SequenceTemplate::Part;
    SequenceTemplate frame = plain_template();
    const auto piece = [&](const char* key) -> SequenceTemplate::Piece {
      const auto id = token_id(key);
      if (!id) fail(path_, "tokenizer.ggml.{} must be given where it is added, got none", key);
      return {Part::kSpecial, *id, 0};
    };
    if (flag("add_bos_token", adds_bos_)) frame.single.insert(frame.single.begin(), piece("bos_token_id"));
    if (flag("add_eos_token", adds_eos_)) frame.single.push_back(piece("eos_token_id"));
    return frame;
  }

  std::vector<Merge> merges() const {
    std::vector<Merge> merges;
    const std::vector<std::string> lines = file_.strings("tokenizer.ggml.merges");
    if (lines.empty()) fail(path_, "tokenizer.ggml.merges must have merges, got none");
    for (const std::string& line : lines) {
      std::optional<Merge> merge = split_merge(line);
      if (!merge) {
        fail(path_, "tokenizer.ggml.merges must be of two tokens with a space between them, got {} in merge {}",
             io::printable(line), merges.size());
      }
      merges.push_back(std::move(*merge));
    }
    return merges;
  }

  const std::string& path_;
  const io::GgufFile file_;
  std::vector<std::string> tokens_;
  std::vector<int64_t> types_;                // by id
  bool adds_bos_ = false, adds_eos_ = false;  // without a key
};

}  // namespace

TokenizerParts read_gguf_tokenizer(const std::string& path) { return GgufTokenizer(path).read(); }

}  // namespace rf::text
