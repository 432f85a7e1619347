// Writes tokenizer.json and tokenizer_config.json, which `transformers` 5 reads, and vocab.txt for WordPiece, which
// older programs read. The class gives the same settings as the file: the pipeline's class with default settings,
// PreTrainedTokenizerFast for everything else.
#include <nlohmann/json.hpp>

#include "files/base64.h"
#include "files/tokenizer_files.h"
#include "models/byte_pair_model.h"
#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/files.h"

namespace rf::text {
namespace {

using nlohmann::ordered_json;

// MPNet's, which the class of word pieces lacks.
bool is_roberta_frame(const Tokenizer& tokenizer) {
  const SpecialIds& special = tokenizer.vocabulary().special();
  return tokenizer.options().pipeline.has_word_pieces() &&
         (tokenizer.options().byte_level.trim_offsets ||
          tokenizer.sequence_template() == roberta_template(special.cls, special.sep));
}

// Throws Error for a pipeline whose only class cannot represent the options.
std::string_view class_of(const Tokenizer& tokenizer) {
  const TokenizerOptions &options = tokenizer.options(), usual;
  const PipelineEntry& pipeline = options.pipeline.entry();
  if (has_unigram(options)) return kPlainClass;
  const bool usual_words = options.max_word_chars == usual.max_word_chars;
  if (pipeline.in_tokenizer_json == InTokenizerJson::kAll) {
    const bool as_the_class_has_it = usual_words && options.decoding.cleanup == usual.decoding.cleanup &&
                                     options.decoding.join == usual.decoding.join &&
                                     options.byte_level.splits.empty() && !is_roberta_frame(tokenizer);
    return as_the_class_has_it ? pipeline.saved_class : kPlainClass;
  }
  if (!usual_words) {
    fail("tokenizer", "max_word_chars must be {} for the pipeline {} to be saved, got {}", usual.max_word_chars,
         pipeline.name, options.max_word_chars);
  }
  return pipeline.saved_class;
}

ordered_json format_replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

ordered_json format_step(const NormalizerStep& step) {
  switch (step.kind) {
    case NormalizerStep::Kind::kPrecompiled:
      return {{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(step.text)}};
    case NormalizerStep::Kind::kReplace: return format_replace(step.text, step.content);
    case NormalizerStep::Kind::kReplaceExpression:
      return {{"type", "Replace"}, {"pattern", {{"Regex", step.text}}}, {"content", step.content}};
    case NormalizerStep::Kind::kStrip:
      return {{"type", "Strip"}, {"strip_left", step.left}, {"strip_right", step.right}};
    case NormalizerStep::Kind::kPrepend: return {{"type", "Prepend"}, {"prepend", step.text}};
    default:
      return {{"type", std::ranges::find(kPlainNormalizers, step.kind,
                                         &std::pair<std::string_view, NormalizerStep::Kind>::second)
                           ->first}};
  }
}

ordered_json format_normalizer(const TokenizerOptions& options) {
  if (has_unigram(options)) {
    if (options.unigram->normalizers.empty()) return nullptr;
    ordered_json steps = ordered_json::array();
    for (const NormalizerStep& step : options.unigram->normalizers) steps.push_back(format_step(step));
    return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  }
  if (has_byte_fallback(options)) {
    if (!options.byte_fallback.in_normalizer) return nullptr;
    const ordered_json replace = format_replace(" ", kSpaceMarker);
    if (options.byte_fallback.prefix == ByteFallbackOptions::Prefix::kNever) return replace;
    const ordered_json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMarker}};
    return {{"type", "Sequence"}, {"normalizers", {prepend, replace}}};
  }
  if (has_byte_pairs(options)) {
    return options.byte_level.nfc ? ordered_json{{"type", "NFC"}} : ordered_json();
  }
  const bool whole = options.pipeline.entry().in_tokenizer_json == InTokenizerJson::kAll;
  ordered_json normalizer = {{"type", "BertNormalizer"},
                             {"clean_text", true},
                             {"handle_chinese_chars", whole && options.tokenize_chinese_chars},
                             {"strip_accents", nullptr},
                             {"lowercase", options.letter_case == Case::kLower}};
  if (options.strip_accents) normalizer["strip_accents"] = *options.strip_accents;
  return normalizer;
}

ordered_json format_byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

ordered_json format_split(const SplitStep& step) {
  if (step.kind == SplitStep::Kind::kDigits || step.kind == SplitStep::Kind::kContiguousDigits) {
    return {{"type", "Digits"}, {"individual_digits", step.kind == SplitStep::Kind::kDigits}};
  }
  const bool removes = step.kind == SplitStep::Kind::kMatches;
  return {{"type", "Split"},
          {"pattern", {{"Regex", step.expression}}},
          {"behavior", removes ? "Removed" : "Isolated"},
          {"invert", removes}};
}

ordered_json format_metaspace(ByteFallbackOptions::Prefix prefix, bool splits) {
  using Prefix = ByteFallbackOptions::Prefix;
  const char* const scheme = prefix == Prefix::kAlways ? "always" : prefix == Prefix::kFirst ? "first" : "never";
  return {{"type", "Metaspace"}, {"replacement", kSpaceMarker}, {"prepend_scheme", scheme}, {"split", splits}};
}

ordered_json format_pre_tokenizer(const TokenizerOptions& options) {
  const ByteFallbackOptions& fallback = options.byte_fallback;
  if (has_byte_fallback(options)) {
    return fallback.in_normalizer ? ordered_json() : format_metaspace(fallback.prefix, fallback.splits);
  }
  if (has_unigram(options)) {
    ordered_json steps = ordered_json::array();
    if (options.unigram->split_spaces) steps.push_back({{"type", "WhitespaceSplit"}});
    if (options.unigram->split_punctuation) steps.push_back({{"type", "Punctuation"}, {"behavior", "Isolated"}});
    steps.push_back(format_metaspace(options.unigram->prefix, options.unigram->splits));
    return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  }
  if (!has_byte_pairs(options)) return {{"type", "BertPreTokenizer"}};
  return format_byte_level(options.byte_level.add_prefix_space, true, options.byte_level.use_regex);
}

ordered_json format_pieces(const std::vector<SequenceTemplate::Piece>& pieces, const Vocabulary& vocabulary) {
  ordered_json out = ordered_json::array();
  for (const SequenceTemplate::Piece& piece : pieces) {
    const bool special = piece.part == SequenceTemplate::Part::kSpecial;
    const std::string id = special                                        ? vocabulary.token(piece.id)
                           : piece.part == SequenceTemplate::Part::kFirst ? "A"
                                                                          : "B";
    out.push_back({{special ? "SpecialToken" : "Sequence", {{"id", id}, {"type_id", piece.type}}}});
  }
  return out;
}

ordered_json format_post_processor(const Tokenizer& tokenizer) {
  const SequenceTemplate& sequence = tokenizer.sequence_template();
  ordered_json specials = ordered_json::object();
  for (const auto* pieces : {&sequence.single, &sequence.pair}) {
    for (const SequenceTemplate::Piece& piece : *pieces) {
      if (piece.part != SequenceTemplate::Part::kSpecial) continue;
      const std::string& token = tokenizer.vocabulary().token(piece.id);
      specials[token] = {{"id", token}, {"ids", {piece.id}}, {"tokens", {token}}};
    }
  }
  ordered_json frame = {{"type", "TemplateProcessing"},
                        {"single", format_pieces(sequence.single, tokenizer.vocabulary())},
                        {"pair", format_pieces(sequence.pair, tokenizer.vocabulary())},
                        {"special_tokens", specials}};
  const ByteLevelOptions& level = tokenizer.options().byte_level;
  if (!level.trim_offsets) return frame;
  if (!has_byte_pairs(tokenizer.options())) {
    const auto token = [&](size_t place) -> ordered_json {
      const int32_t id = sequence.single.at(place).id;
      return {tokenizer.vocabulary().token(id), id};
    };
    return {{"type", "RobertaProcessing"},
            {"sep", token(2)},
            {"cls", token(0)},
            {"trim_offsets", true},
            {"add_prefix_space", level.trim_keeps_first_space}};
  }
  const ordered_json trim = format_byte_level(level.trim_keeps_first_space, true, level.use_regex);
  return {{"type", "Sequence"}, {"processors", {trim, frame}}};
}

ordered_json format_decoder(const DecodingOptions& decoding) {
  switch (decoding.join) {
    case DecodingOptions::Join::kSpaces: return nullptr;
    case DecodingOptions::Join::kBytes: return format_byte_level(true, true, true);
    case DecodingOptions::Join::kMetaspace:
      return format_metaspace(
          decoding.strip_left > 0 ? ByteFallbackOptions::Prefix::kAlways : ByteFallbackOptions::Prefix::kNever, true);
    case DecodingOptions::Join::kFallback: {
      ordered_json steps = {format_replace(kSpaceMarker, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
      if (decoding.strip_left > 0) {
        steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", decoding.strip_left}, {"stop", 0}});
      }
      return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
    }
    default: return {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", decoding.cleanup}};
  }
}

ordered_json format_model(const Tokenizer& tokenizer) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (has_unigram(tokenizer.options())) {
    const UnigramOptions& unigram = *tokenizer.options().unigram;
    ordered_json pieces = ordered_json::array();
    for (size_t id = 0; id < unigram.scores.size(); ++id) {
      pieces.push_back({vocabulary.token(static_cast<int64_t>(id)), unigram.scores[id]});
    }
    return {{"type", "Unigram"},
            {"unk_id", unigram.unk},
            {"vocab", std::move(pieces)},
            {"byte_fallback", unigram.byte_fallback}};
  }
  ordered_json vocab = ordered_json::object();
  vocab.get_ref<ordered_json::object_t&>().reserve(static_cast<size_t>(vocabulary.model_size()));
  for (int64_t id = 0; id < vocabulary.model_size(); ++id) {
    // Tokens are known to differ; a look-up for each would take quadratic time.
    vocab.get_ref<ordered_json::object_t&>().Container::emplace_back(vocabulary.token(id), id);
  }
  if (!has_byte_pairs(tokenizer.options())) {
    return {{"type", "WordPiece"},
            {"unk_token", vocabulary.special_names().unk},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", tokenizer.options().max_word_chars},
            {"vocab", std::move(vocab)}};
  }
  ordered_json merges = ordered_json::array();
  for (const auto& [left, right] : tokenizer.merges()) merges.push_back({left, right});
  const ByteFallbackOptions& fallback = tokenizer.options().byte_fallback;
  const bool characters = has_byte_fallback(tokenizer.options());
  const std::string& unk = vocabulary.special_names().unk;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", characters && !unk.empty() ? ordered_json(unk) : ordered_json()},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", characters && fallback.fuse_unk},
          {"byte_fallback", characters && fallback.byte_fallback},
          {"ignore_merges", characters ? fallback.ignore_merges : tokenizer.options().byte_level.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

std::string format_tokenizer_json(const Tokenizer& tokenizer) {
  const TokenizerOptions& options = tokenizer.options();
  const ByteLevelOptions& level = options.byte_level;
  ordered_json added = ordered_json::array();
  for (const AddedToken& token : tokenizer.added_tokens()) {
    ordered_json item = {{"id", token.id}};
    item.update(format_added_token(token));
    added.push_back(std::move(item));
  }
  ordered_json pre_tokenizer = format_pre_tokenizer(options);
  if (!level.splits.empty()) {
    ordered_json steps = ordered_json::array();
    for (const SplitStep& step : level.splits) steps.push_back(format_split(step));
    steps.push_back(std::move(pre_tokenizer));
    pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  }
  const ordered_json file = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", std::move(added)},
                             {"normalizer", format_normalizer(options)},
                             {"pre_tokenizer", pre_tokenizer},
                             {"post_processor", format_post_processor(tokenizer)},
                             {"decoder", format_decoder(options.decoding)},
                             {"model", format_model(tokenizer)}};
  return file.dump(2) + "\n";
}

std::string format_tokenizer_config(const Tokenizer& tokenizer) {
  const TokenizerOptions& options = tokenizer.options();
  ordered_json config = {{"tokenizer_class", class_of(tokenizer)}};
  const auto& classes = options.pipeline.entry().classes;
  const bool ends_with_eos = !classes.empty() && classes.front().ends_with_eos;
  if (has_byte_fallback(options) || has_unigram(options) || ends_with_eos) {
    config["clean_up_tokenization_spaces"] = options.decoding.clean_up_tokenization_spaces;
  } else if (has_byte_pairs(options)) {
    config["add_prefix_space"] = options.byte_level.add_prefix_space;
  } else {
    config["do_lower_case"] = options.letter_case == Case::kLower;
    config["strip_accents"] = nullptr;
    if (options.strip_accents) config["strip_accents"] = *options.strip_accents;
    config["tokenize_chinese_chars"] = options.tokenize_chinese_chars;
    config["clean_up_tokenization_spaces"] = options.decoding.clean_up_tokenization_spaces;
  }
  if (options.pipeline.entry().classes.empty() && !has_byte_fallback(options) && !has_unigram(options))
    config[kPipelineKey] = name(options.pipeline);
  if (options.dictionary != nullptr) config[kDictionaryKey] = options.dictionary->hash();
  for (const SpecialRole role : kSpecialRoles) {
    const std::string& token = name_of(tokenizer.vocabulary().special_names(), role);
    if (!token.empty()) config[std::string(config_key(role))] = token;
  }
  const SpecialNames& names = tokenizer.vocabulary().special_names();
  if (ends_with_eos && names.eos.empty())
    config["eos_token"] = names.sep.empty() ? ordered_json() : ordered_json(names.sep);
  if (options.pipeline.entry().in_tokenizer_json == InTokenizerJson::kNone) {
    for (const AddedToken& token : tokenizer.added_tokens()) {
      config["added_tokens_decoder"][std::to_string(token.id)] = format_added_token(token);
    }
  }
  return config.dump(2) + "\n";
}

}  // namespace

std::vector<std::string> Tokenizer::saved_files() const {
  std::vector<std::string> names = {"tokenizer_config.json"};
  if (options_.pipeline.has_word_pieces()) names.emplace_back("vocab.txt");
  if (options_.pipeline.entry().in_tokenizer_json != InTokenizerJson::kNone) names.emplace_back("tokenizer.json");
  return names;
}

void write_tokenizer(const std::filesystem::path& model_dir, const Tokenizer& tokenizer) {
  for (const std::string& name : tokenizer.saved_files()) {
    const std::string path = (model_dir / name).string();
    if (name == "vocab.txt") {
      tokenizer.vocabulary().save(path);
    } else {
      io::write_file(path,
                     name == "tokenizer.json" ? format_tokenizer_json(tokenizer) : format_tokenizer_config(tokenizer));
    }
  }
  if (tokenizer.options().dictionary != nullptr) tokenizer.options().dictionary->save(model_dir.string());
}

void write_dictionary(const std::filesystem::path& model_dir, const Dictionary& dictionary) {
  const std::string path = (model_dir / "tokenizer_config.json").string();
  nlohmann::json config = nlohmann::json::object();
  if (io::has_file(path)) config = io::read_json(path);
  config[kDictionaryKey] = dictionary.hash();
  dictionary.save(model_dir.string());
  io::write_file(path, config.dump(2) + "\n");
}

}  // namespace rf::text
