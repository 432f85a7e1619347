// Chooses the files like `transformers` 5. The class is named by tokenizer_config.json, else by config.json
// (tokenizer_class, then model_type), else inferred from the files present. tokenizer.json takes precedence over
// vocab.txt and vocab.json. The classes of BERT, RoFormer, GPT-2 and RoBERTa read only the vocabulary, the merges, the
// added tokens and the post-processor from it, and take everything else from their settings; if the file differs from
// these settings, other programs would give other tokens, so it is refused. PreTrainedTokenizerFast reads the whole
// file. So do directories of rotary decoders, whatever class they name: published directories often name GPT2Tokenizer
// together with a tokenizer.json that splits digits, with which the model was trained.
#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "files/directory_class.h"
#include "files/sentencepiece_classes.h"
#include "files/tokenizer_files.h"
#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/gguf.h"
#include "rf/io/nearest_name.h"
#include "rf/io/warning.h"
#include "rf/text/segmenter.h"
#include "splitters/published_expressions.h"

namespace rf::text {
namespace {

constexpr char kConfigWhere[] = "tokenizer_config";

class Loader {
 public:
  Loader(const std::filesystem::path& dir, const LoadOptions& load, Dictionaries dictionaries)
      : dir_(dir),
        load_(load),
        dictionaries_(dictionaries),
        config_(read_tokenizer_config(dir)),
        model_config_(has("config.json") ? io::read_json((dir_ / "config.json").string()) : nlohmann::json()) {}
  TokenizerParts load() {
    class_ = find_class_of_directory();
    if (has("tokenizer.json") && !class_.is(InTokenizerJson::kNone)) {
      json_ = read_tokenizer_json((dir_ / "tokenizer.json").string());
    } else if (ranks_ != nullptr) {
      read_rank_file();
    } else if (!class_.pipeline) {
      read_pieces();
    }
    std::vector<std::string> tokens = read_model_tokens();
    const auto model_size = static_cast<int64_t>(tokens.size());
    set_options();
    name_specials();
    collect_added();
    assign_ids(tokens);
    Vocabulary vocabulary(std::move(tokens), names_, model_size, dir_.string());
    SequenceTemplate sequence = find_template(vocabulary);
    return {std::move(vocabulary), std::move(options_), std::move(added_), std::move(merges_), std::move(sequence)};
  }

 private:
  DirectoryClass find_class_of_directory() const {
    if (ranks_ != nullptr) return {};
    if (is_decoder_type(text_of_config_json("model_type"))) {
      return {.pieces = find_sentencepiece_class(config_.tokenizer_class)};
    }
    if (!config_.tokenizer_class.empty()) return find_class(config_.tokenizer_class, config_.path);
    std::string of_model = text_of_config_json("tokenizer_class");
    if (of_model.ends_with("Fast")) of_model.resize(of_model.size() - 4);
    if (!of_model.empty()) return find_class(of_model, (dir_ / "config.json").string());
    if (const auto named = class_of_model(text_of_config_json("model_type")); named) return *named;
    if (has("tokenizer.json")) return {};
    if (const SentencePieceClass* known = find_sentencepiece_class_of_model(text_of_config_json("model_type"))) {
      return {.pieces = known};
    }
    if (sentencepiece_file() != nullptr) return {};
    if (!has("vocab.json") && !has("vocab.txt") && !has("config.json")) {
      fail<MissingFileError>(
          "tokenizer", "a directory must hold the files of a model or a tokenizer, such as config.json, got {} in {}",
          io::found_without_model(dir_.string()), dir_.string());
    }
    return *class_of_name(has("vocab.json") && !has("vocab.txt") ? "GPT2Tokenizer" : "BertTokenizer");
  }
  // For an unknown class, such as one in the code of the model's authors, tokenizer.json is read unchanged.
  DirectoryClass find_class(const std::string& name, const std::string& path) const {
    const std::optional<DirectoryClass> named = class_of_name(name);
    if (named) return *named;
    if (has("tokenizer.json") && !is_unsupported_class(name)) {
      io::warn(path, "the tokenizer_class {} is unknown: tokenizer.json is read as it is, as by transformers", name);
      return {};
    }
    std::vector<std::string_view> names;
    for (const Pipeline pipeline : all_pipelines()) {
      std::ranges::transform(pipeline.entry().classes, std::back_inserter(names), &TokenizerClass::name);
    }
    names.emplace_back(kPlainClass);
    fail(kConfigWhere, "{}: \"tokenizer_class\" must be {}, got \"{}\"", path, io::listed(names, "or"), name);
  }
  // "" without such a text.
  std::string text_of_config_json(const char* key) const {
    const nlohmann::json value =
        model_config_.is_object() ? model_config_.value(key, nlohmann::json()) : nlohmann::json();
    return value.is_string() ? value.get<std::string>() : std::string();
  }
  bool has(const char* file) const { return io::has_file((dir_ / file).string()); }
  std::vector<std::string> read_model_tokens() {
    if (json_) {
      merges_ = std::move(json_->merges);
      return std::move(json_->tokens);
    }
    if (class_.has_word_pieces()) return read_lines((dir_ / "vocab.txt").string());
    read_merges_file();
    const std::string path = (dir_ / "vocab.json").string();
    return read_token_ids(io::read_json(path), path);
  }
  const char* sentencepiece_file() const {  // null: none
    const auto* found = std::ranges::find_if(kSentencePieceFiles, [this](const char* name) { return has(name); });
    return found == std::end(kSentencePieceFiles) ? nullptr : *found;
  }
  void read_rank_file() {
    const std::string path = (dir_ / ranks_).string();
    const auto specials = config_.has_added_tokens_decoder ? RankSpecials::kOfConfig : RankSpecials::kOfFile;
    json_ = ranks_ == kTekkenFile ? read_tekken(path) : read_ranks(path, specials);
    if (config_.add_eos_token.value_or(false))
      fail(kConfigWhere, "{}: \"add_eos_token\" must be false with {}, got true", config_.path, ranks_);
  }
  // Instead of a tokenizer.json.
  void read_pieces() {
    const char* const file = sentencepiece_file();
    if (file == nullptr) {
      fail<MissingFileError>(kConfigWhere, "{}: {} must have a tokenizer.json or SentencePiece's model file, got none",
                             dir_.string(),
                             config_.tokenizer_class.empty() ? "a model of this type" : config_.tokenizer_class);
    }
    if (class_.pieces == nullptr) {
      fail(kConfigWhere, "{}: the tokenizer_class must be one over {}, such as LlamaTokenizer, got {}", config_.path,
           file, config_.tokenizer_class.empty() ? "none" : config_.tokenizer_class);
    }
    is_sentencepiece_ = true;
    name_specials();
    json_ = read_sentencepiece((dir_ / file).string(), *class_.pieces, names_, config_);
  }
  // merges.txt: one merge per line, two tokens with a space between them; the first line may name a version.
  void read_merges_file() {
    const std::string path = (dir_ / "merges.txt").string();
    const std::vector<std::string> lines = read_lines(path);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].starts_with("#version") || lines[i].empty()) continue;
      std::optional<Merge> merge = split_merge(lines[i]);
      if (!merge) {
        fail("merges", "{}: a line must be two tokens with a space between them, got \"{}\" in line {}", path, lines[i],
             i + 1);
      }
      merges_.push_back(std::move(*merge));
    }
  }
  void name_specials() {
    names_ = class_.pipeline     ? class_.settings->special
             : is_sentencepiece_ ? class_.pieces->special
             : json_             ? json_->special
                                 : kNoSpecialNames;
    for (const SpecialRole role : kSpecialRoles) {
      if (const auto& named = config_.special[static_cast<size_t>(role)]; named) name_of(names_, role) = named->content;
    }
    if (class_.pipeline || !json_) return;
    if (names_.pad.empty()) names_.pad = json_->pad_token;
    const bool needs_unk = has_byte_fallback(options_) && !options_.byte_fallback.byte_fallback;
    if (has_byte_pairs(options_) && !needs_unk) return;
    const std::string unk = json_->unk_token.value_or("");
    if (names_.unk.empty()) names_.unk = unk;
    agree("the unk_token", names_.unk, unk);
  }
  void collect_added() {
    const bool config_counts = config_.has_added_tokens_decoder;
    if (json_ && (!class_.pipeline || !config_counts)) {
      if (config_.added_tokens && !config_counts) {
        for (const AddedToken& token : *config_.added_tokens) add(token);
      }
      for (const AddedToken& token : json_->added) add(token);
    }
    if (config_.added_tokens && (config_counts || !json_)) {
      for (const AddedToken& token : *config_.added_tokens) add(token);
    }
    std::ranges::sort(added_, {}, &AddedToken::id);
    for (size_t i = 0; i < added_.size(); ++i) added_places_[added_[i].content] = i;
    for (const SpecialRole role : {SpecialRole::kBos, SpecialRole::kEos, SpecialRole::kUnk, SpecialRole::kSep,
                                   SpecialRole::kPad, SpecialRole::kCls, SpecialRole::kMask}) {
      const std::string& content = name_of(names_, role);
      if (content.empty()) continue;
      const auto& described = config_.special[static_cast<size_t>(role)];
      const bool strips =
          role == SpecialRole::kMask &&
          (class_.pipeline ? class_.settings->mask_strips_left : is_sentencepiece_ && class_.pieces->mask_strips_left);
      if (!described && class_.has_word_pieces() && !strips) continue;
      AddedToken token = described.value_or(AddedToken{.content = content, .special = true});
      token.lstrip = token.lstrip || strips;
      add(std::move(token));
    }
    for (const AddedToken& token : config_.extra) add(token);
  }
  // A token that is described twice keeps its last description.
  void add(AddedToken token) {
    const auto [place, is_new] = added_places_.try_emplace(token.content, added_.size());
    if (is_new) {
      added_.push_back(std::move(token));
    } else if (token.id >= 0) {
      added_[place->second] = std::move(token);
    }
  }
  // A token of the model keeps its id; others get the next ids. A file with other ids is refused.
  void assign_ids(std::vector<std::string>& tokens) {
    std::map<std::string_view, int32_t> ids;
    for (size_t id = 0; id < tokens.size(); ++id) ids[tokens[id]] = static_cast<int32_t>(id);
    std::vector<std::string> more;
    auto next = static_cast<int32_t>(tokens.size());
    for (AddedToken& token : added_) {
      const auto found = ids.find(token.content);
      const int32_t id = found == ids.end() ? next : found->second;
      if (token.id >= 0 && token.id != id) {
        fail("added_tokens", "{}: \"{}\" must have the id {}, that of the vocabulary or the next free one, got {}",
             dir_.string(), token.content, id, token.id);
      }
      token.id = id;
      if (found != ids.end()) continue;
      more.push_back(token.content);
      ++next;
    }
    tokens.insert(tokens.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  void set_options() {
    if (class_.pipeline) {
      options_.pipeline = *class_.pipeline;
    } else {
      options_ = json_->options;
    }
    const bool bytes = has_byte_pairs(options_);
    if (has_byte_fallback(options_)) {
      check_fallback_settings();
    } else if (has_unigram(options_)) {
      set_unigram_options();
    } else if (bytes) {
      set_byte_level_options(options_);
    } else {
      set_bert_options(options_);
    }
    const bool python = class_.is(InTokenizerJson::kNone);
    const bool cleans = python && options_.pipeline.entry().basic_tokenizer;
    options_.decoding.clean_up_tokenization_spaces = !bytes && config_.clean_up_tokenization_spaces.value_or(cleans);
    if (python) options_.decoding.cleanup = false;  // without a decoder of `tokenizers`
    if (python && !config_.python_key.empty())
      fail(kConfigWhere, "{}: \"{}\" must be absent for {}, whose tokens it changes", config_.path, config_.python_key,
           config_.tokenizer_class);
    if (json_ && !has_unigram(options_)) check_agreement(options_);
    if (json_) check_class_of_file();
    choose_pipeline();
    check_dictionaries(load_, options_.pipeline);
    if (!options_.pipeline.segments_words() || dictionaries_ == Dictionaries::kLeftOut) return;
    options_.dictionary = load_dictionary(dir_.string(), load_);
    check_dictionary_hash();
  }
  void choose_pipeline() {
    if (config_.pipeline) {
      const std::string_view shared = config_.pipeline->entry().saved_class;
      if (!class_.pipeline || class_.settings->name != shared) {
        fail(kConfigWhere, "{}: \"{}\" must be used with the tokenizer_class {}, got \"{}\"", config_.path,
             kPipelineKey, shared, config_.tokenizer_class);
      }
      options_.pipeline = *config_.pipeline;
    }
    if (!load_.pipeline) return;
    const bool bytes = !options_.pipeline.has_word_pieces();
    if (bytes ? *load_.pipeline != options_.pipeline : !load_.pipeline->has_word_pieces()) {
      fail(kConfigWhere, "{}: the pipeline must be one for the directory's {}, got {}", dir_.string(),
           bytes ? name(options_.pipeline) : "word pieces", name(*load_.pipeline));
    }
    options_.pipeline = *load_.pipeline;
  }
  void set_bert_options(TokenizerOptions& options) const {
    const bool by_class = class_.pipeline.has_value();
    if (by_class || config_.do_lower_case) {
      options.letter_case = config_.do_lower_case.value_or(true) ? Case::kLower : Case::kKeep;
    }
    if (by_class || config_.strip_accents) options.strip_accents = config_.strip_accents;
    if (by_class || config_.tokenize_chinese_chars) {
      options.tokenize_chinese_chars = config_.tokenize_chinese_chars.value_or(true);
    }
    if (by_class) options.byte_level.trim_offsets = class_.settings->trims_offsets;
  }
  void set_byte_level_options(TokenizerOptions& options) const {
    ByteLevelOptions& level = options.byte_level;
    if (!class_.pipeline) {
      if (config_.add_prefix_space) level.add_prefix_space = *config_.add_prefix_space;
      return;
    }
    options.decoding.join = DecodingOptions::Join::kBytes;
    level.add_prefix_space = config_.add_prefix_space.value_or(false);
    if (class_.settings->trims_offsets) {
      level.trim_offsets = config_.trim_offsets.value_or(true);
      level.trim_keeps_first_space = level.add_prefix_space;
    } else if (json_) {
      level.trim_offsets = json_->options.byte_level.trim_offsets;
      level.trim_keeps_first_space = json_->options.byte_level.trim_keeps_first_space;
    }
    if ((config_.add_bos_token.value_or(false) || config_.add_eos_token.value_or(false)) && !json_) {
      fail(kConfigWhere, "{}: \"add_bos_token\" and \"add_eos_token\" must be false without a tokenizer.json, got true",
           config_.path);
    }
  }
  static std::string shown(const std::vector<SplitStep>& splits) {
    std::string text;
    for (const SplitStep& step : splits) {
      text += (text.empty() ? "" : ", ") + (step.expression.empty() ? "Digits" : step.expression);
      if (step.kind == SplitStep::Kind::kMatches || step.kind == SplitStep::Kind::kContiguousDigits) text += "+";
    }
    return text.empty() ? "GPT-2's" : text;
  }
  // transformers 5 builds these classes from their own settings, and others from the file.
  void check_class_of_file() const {
    if (class_.pipeline || is_decoder_type(text_of_config_json("model_type"))) return;
    const TokenizerOptions& file = json_->options;
    const std::string& known = config_.tokenizer_class;
    const SentencePieceClass* const pieces = class_.pieces;
    // A file with another type of model is read unchanged.
    if (pieces == nullptr || (pieces->name == "LlamaTokenizer" && !has_byte_fallback(file))) {
      if (known != "Qwen2Tokenizer") return;
      agree("the model", name(Pipeline::kByteLevelBpe), name(file.pipeline));
      agree("the expression that splits", std::string(kQwen2Expression), shown(file.byte_level.splits));
      agree("NFC", true, file.byte_level.nfc);
      agree("ignore_merges", false, file.byte_level.ignore_merges);
      return;
    }
    agree("the model", name(pieces->set != nullptr ? Pipeline::kUnigram : Pipeline::kByteFallbackBpe),
          name(file.pipeline));
    if (pieces->set != nullptr) return;
    ByteFallbackOptions own = pieces->set_bpe(config_);
    agree("the source of \"▁\" (normalizer or Metaspace)", own.in_normalizer, file.byte_fallback.in_normalizer);
    agree("the \"▁\" in front", own.prefix == file.byte_fallback.prefix, true);
    own.prefix = file.byte_fallback.prefix;
    agree("Metaspace's split, byte_fallback, fuse_unk and ignore_merges", own == file.byte_fallback, true);
  }
  // transformers 5 builds these classes from their own settings and the vocabulary and character map of the file.
  void set_unigram_options() {
    const SentencePieceClass* const known = class_.pieces;
    if (known == nullptr || known->set == nullptr) {
      const bool prefixed = json_->options.unigram->prefix != ByteFallbackOptions::Prefix::kNever;
      if (prefixed && !config_.add_prefix_space.value_or(true)) refuse_prefix();
      return;
    }
    UnigramOptions own = *options_.unigram;
    known->set(own, config_);
    options_.decoding.join = DecodingOptions::Join::kMetaspace;
    options_.decoding.strip_left = own.prefix == ByteFallbackOptions::Prefix::kNever ? 0 : 1;
    if (own == *options_.unigram) return;
    io::warn(dir_.string(),
             "tokenizer.json and {} must agree on the normalizer and the pre_tokenizer, got others in the "
             "file: those of the class are used, as by transformers",
             known->name);
    options_.unigram = std::make_shared<const UnigramOptions>(std::move(own));
  }
  [[noreturn]] void refuse_prefix() const {
    fail(kConfigWhere, "{}: \"add_prefix_space\" must be absent or true where tokenizer.json adds it, got false",
         config_.path);
  }
  void check_fallback_settings() const {
    const auto prefix = config_.add_prefix_space;
    if (prefix && !*prefix && json_->options.byte_fallback.prefix != ByteFallbackOptions::Prefix::kNever) {
      refuse_prefix();
    }
  }
  void check_agreement(const TokenizerOptions& options) const {
    const TokenizerOptions& file = json_->options;
    const auto model = [](const TokenizerOptions& o) { return name(has_byte_pairs(o) ? o.pipeline : Pipeline::kBert); };
    agree("the model", model(options), model(file));
    if (has_byte_pairs(options)) {
      agree("add_prefix_space", options.byte_level.add_prefix_space, file.byte_level.add_prefix_space);
      agree("use_regex", options.byte_level.use_regex, file.byte_level.use_regex);
      agree("the expression that splits", shown(options.byte_level.splits), shown(file.byte_level.splits));
      agree("NFC", options.byte_level.nfc, file.byte_level.nfc);
      agree("ignore_merges", options.byte_level.ignore_merges, file.byte_level.ignore_merges);
      return;
    }
    const auto lower = [](const TokenizerOptions& o) { return o.letter_case == Case::kLower; };
    agree("lowercase", lower(options), lower(file));
    agree("strip_accents", strips_accents(options), strips_accents(file));
    // RoFormer splits CJK characters after the segmenter instead of in the normaliser.
    const bool spaces_cjk = !class_.is(InTokenizerJson::kPart) && options.tokenize_chinese_chars;
    agree("handle_chinese_chars", spaces_cjk, file.tokenize_chinese_chars);
    agree("max_input_chars_per_word", options.max_word_chars, file.max_word_chars);
    agree("the decoder's cleanup", options.decoding.cleanup, file.decoding.cleanup);
  }
  // Given dictionaries are not checked against the recorded hash.
  void check_dictionary_hash() const {
    const bool given = !load_.dictionary.empty() || !load_.user_dictionaries.empty();
    const std::string &recorded = config_.dictionary_hash, &found = options_.dictionary->hash();
    if (given || recorded.empty() || recorded == found) return;
    fail("dictionary",
         "{} must be used with the dictionary that it was made with, with hash {}, got {} with hash {} (--dict gives "
         "another)",
         dir_.string(), recorded, find_dictionary(dir_.string(), ""), found);
  }
  SequenceTemplate find_template(const Vocabulary& vocabulary) const {
    const SpecialIds& special = vocabulary.special();
    if (class_.pipeline && class_.settings->frame != nullptr) {
      const bool by_eos = class_.settings->ends_with_eos;
      vocabulary.require({SpecialRole::kCls, by_eos ? SpecialRole::kCls : SpecialRole::kSep}, dir_.string());
      return class_.settings->frame(special.cls, by_eos ? special.eos : special.sep);
    }
    if (const SentencePieceClass* known = class_.pieces) {
      const bool is_in_file = known->file_has_frame && (known->set == nullptr || (json_ && json_->sequence));
      if (is_sentencepiece_ || !is_in_file) return known->frame(vocabulary, names_, config_);
    }
    if (config_.is_qwens_own && config_.add_eos_token.value_or(false))
      return find_sentencepiece_class("LlamaTokenizer")->frame(vocabulary, names_, config_);
    SequenceTemplate frame = json_ && json_->sequence ? *json_->sequence : plain_template();
    const bool begins = ranks_ != nullptr && (ranks_ == kTekkenFile || ranks_ == kLlamaRanks);
    if (begins && special.bos >= 0 && config_.add_bos_token.value_or(true)) {
      for (auto* pieces : {&frame.single, &frame.pair})
        pieces->insert(pieces->begin(), {.part = SequenceTemplate::Part::kSpecial, .id = special.bos});
    }
    return frame;
  }
  // tokenizer.json must agree with the class.
  template <typename T>
  void agree(const char* what, const T& of_class, const T& of_file) const {
    if (of_class == of_file) return;
    fail(kConfigWhere, "{}: tokenizer.json and {} must agree on {}, got {} and {}", dir_.string(),
         config_.tokenizer_class.empty() ? "the tokenizer's class" : config_.tokenizer_class, what, of_file, of_class);
  }

  const std::filesystem::path dir_;
  const LoadOptions& load_;
  const Dictionaries dictionaries_;
  const TokenizerConfig config_;
  const nlohmann::json model_config_;  // null without config.json
  // The file of ranks that replaces a tokenizer.json or a vocabulary; null: none.
  const char* const ranks_ = has("tokenizer.json") || has("vocab.json") || has("vocab.txt") ? nullptr : rank_file(dir_);
  std::optional<TokenizerJson> json_;
  bool is_sentencepiece_ = false;  // json_ is of such a file
  DirectoryClass class_;
  SpecialNames names_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, size_t> added_places_;  // of contents in added_
  std::vector<Merge> merges_;
  TokenizerOptions options_;
};

}  // namespace

void check_dictionaries(const LoadOptions& options, Pipeline pipeline) {
  if (pipeline.segments_words()) return;
  if (options.dictionary.empty() && options.user_dictionaries.empty()) return;
  fail("tokenizer", "dictionaries go with the pipelines {}, which segment words, got {} for {}",
       segmenting_pipelines("and"), options.dictionary.empty() ? options.user_dictionaries.front() : options.dictionary,
       name(pipeline));
}

std::shared_ptr<const Dictionary> load_dictionary(const std::string& model_dir, const LoadOptions& options) {
  std::vector<std::string> users = options.user_dictionaries;
  const std::filesystem::path own = std::filesystem::path(model_dir) / kUserDictionaryFile;
  if (users.empty() && !model_dir.empty() && io::has_file(own.string())) users.push_back(own.string());
  return Dictionary::load(find_dictionary(model_dir, options.dictionary), users);
}

TokenizerParts read_tokenizer(const std::filesystem::path& model_dir, const LoadOptions& options,
                              Dictionaries dictionaries) {
  if (std::filesystem::is_regular_file(model_dir) &&
      (model_dir.extension() == ".gguf" || io::is_gguf_file(model_dir.string()))) {
    check_dictionaries(options, Pipeline::kByteLevelBpe);
    return read_gguf_tokenizer(model_dir.string());
  }
  if (!std::filesystem::is_directory(model_dir)) {
    fail<MissingFileError>("tokenizer", "a tokenizer must be a directory with its files, got {}, which {}",
                           model_dir.string(),
                           std::filesystem::exists(model_dir) ? "is not a directory" : "does not exist");
  }
  return Loader(model_dir, options, dictionaries).load();
}

}  // namespace rf::text
