// Strict reading of tokenizer.json: every section is read key by key, and settings without a counterpart here are
// errors. The sections "truncation" and "padding" are defaults of calls and do not affect tokens: only the padding
// token is read from them.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ranges>
#include <utility>

#include "files/tokenizer_files.h"
#include "files/tokenizer_json_section.h"
#include "models/byte_alphabet.h"
#include "models/byte_pair_model.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/utf8.h"
#include "splitters/expression.h"
#include "splitters/published_expressions.h"
#include "unicode/ascii.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

using nlohmann::json;

// Whether RobertaProcessing would trim the source of the token.
bool has_outer_space(std::string_view token) {
  const auto is_space = [](const Decoded& c) { return c.code == kSpaceLetter || is_white_space(c.code); };
  return !token.empty() && (is_space(decode_utf8(token)) || is_space(decode_last_utf8(token)));
}

bool is_id(const json& value) { return value.is_number_unsigned() && value <= INT32_MAX; }

class Reader : SectionReader {
 public:
  explicit Reader(const std::string& path) : SectionReader(path), json_(io::read_json(path)) {}
  TokenizerJson read() {
    StrictObject top = object(json_, "");
    static const json absent;
    const auto section = [&top](const char* key) -> const json& {  // not copied: a vocabulary may be large
      const json* value = top.find(key);
      return value == nullptr ? absent : *value;
    };
    if (const json* version = top.find("version"); version != nullptr && *version != "1.0") {
      refuse("version", "\"1.0\"", *version);
    }
    const json &model = section("model"), &normalizer = section("normalizer");
    const json &pre_tokenizer = section("pre_tokenizer"), &decoder = section("decoder");
    if (!model.is_object()) refuse("model", "an object", model);
    const bool is_unigram = type_of(model) == "Unigram";
    is_fallback_ = !is_unigram && uses_characters(model, normalizer, pre_tokenizer);
    if (is_unigram) {
      read_unigram_json(json_, path_, out_);
    } else {
      read_model(model);
    }
    if (is_fallback_) {
      read_markers(normalizer, pre_tokenizer);
    } else if (!is_unigram) {
      read_normalizer(normalizer);
      read_pre_tokenizer(pre_tokenizer);
    }
    read_added(section("added_tokens"));
    if (const json& post = section("post_processor"); !post.is_null()) read_post_processor(post, "post_processor");
    if (!is_unigram) read_decoder(decoder);
    read_padding(section("padding"));
    section("truncation");
    top.finish();
    return std::move(out_);
  }

 private:
  // The one element of {"type": "Sequence", <list>: [...]}, or the value itself.
  const json& unwrap(const json& value, const std::string& key, const std::string& list) const {
    if (type_of(value) != "Sequence") return value;
    if (!value.contains(list) || !value[list].is_array() || value[list].size() != 1) {
      refuse(key, "of one step, not a sequence of others", value);
    }
    return value[list][0];
  }
  // The steps of a Sequence, the value alone, or nothing.
  static std::vector<json> steps_of(const json& value, const char* list) {
    if (type_of(value) != "Sequence") return value.is_null() ? std::vector<json>() : std::vector<json>{value};
    const json steps = value.value(list, json());
    return steps.is_array() ? steps.get<std::vector<json>>() : std::vector<json>{value};
  }
  // Whether a BPE is one over characters.
  static bool uses_characters(const json& model, const json& normalizer, const json& pre_tokenizer) {
    const auto has = [](const std::vector<json>& steps, std::string_view type) {
      return std::ranges::any_of(steps, [type](const json& step) { return type_of(step) == type; });
    };
    if (!model.contains("merges") || has(steps_of(pre_tokenizer, "pretokenizers"), "ByteLevel")) return false;
    return model.value("byte_fallback", json()) == true || has(steps_of(pre_tokenizer, "pretokenizers"), "Metaspace") ||
           has(steps_of(normalizer, "normalizers"), "Replace");
  }
  void read_model(const json& value) {
    StrictObject model = object(value, "model");
    // Files of old versions omit the type.
    const std::string type = model.text("type", value.contains("merges") ? "BPE" : "WordPiece");
    const json* vocab = model.find("vocab");
    if (vocab == nullptr) refuse("model.vocab", "an object", nullptr);
    out_.tokens = read_token_ids(*vocab, path_);
    if (type == "WordPiece") {
      read_word_piece(model);
    } else if (type == "BPE") {
      read_bpe(model);
    } else {
      refuse("model.type", "\"WordPiece\", \"BPE\" or \"Unigram\"", type);
    }
    model.finish();
  }
  void read_word_piece(StrictObject& model) {
    out_.options.pipeline = Pipeline::kBert;
    out_.unk_token = model.text("unk_token", "[UNK]");
    expect(model, "continuing_subword_prefix", "##", "\"##\"");
    out_.options.max_word_chars = static_cast<int>(model.integer("max_input_chars_per_word", 100, 1, INT32_MAX));
  }
  void read_bpe(StrictObject& model) {
    out_.options.pipeline = is_fallback_ ? Pipeline::kByteFallbackBpe : Pipeline::kByteLevelBpe;
    if (is_fallback_) {
      out_.options.byte_fallback.byte_fallback = model.boolean("byte_fallback", false);
      out_.options.byte_fallback.fuse_unk = model.boolean("fuse_unk", false);
      const json* unk = model.find("unk_token");
      if (unk != nullptr && unk->is_string()) out_.unk_token = unk->get<std::string>();
    } else {  // every byte has a token, so settings for unknown characters do not matter
      for (const char* key : {"unk_token", "fuse_unk", "byte_fallback"}) model.find(key);
    }
    if (const json* dropout = model.find("dropout"); dropout != nullptr && !dropout->is_null() && *dropout != 0.0) {
      refuse("model.dropout", "null", *dropout);
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const json* value = model.find(key);
      if (value != nullptr && !value->is_null() && *value != "") refuse(model.path_of(key), "null", *value);
    }
    const bool ignore_merges = model.boolean("ignore_merges", false);
    (is_fallback_ ? out_.options.byte_fallback.ignore_merges : out_.options.byte_level.ignore_merges) = ignore_merges;
    const json* merges = model.find("merges");
    if (merges == nullptr || !merges->is_array()) refuse("model.merges", "an array", nullptr);
    read_merges(*merges);
  }
  void read_merges(const json& value) {
    for (const json& merge : value) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        out_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      std::optional<Merge> pair = split_merge(merge.is_string() ? merge.get<std::string>() : "");
      if (!pair) refuse("model.merges", "an array of pairs of tokens", merge);
      out_.merges.push_back(std::move(*pair));
    }
  }
  // Where "▁" comes from: the normalizers Replace, or Prepend and Replace, or the pre-tokenizer Metaspace. After
  // Replace, a Split at spaces finds none.
  void read_markers(const json& normalizer, const json& pre_tokenizer) {
    ByteFallbackOptions& options = out_.options.byte_fallback;
    const std::vector<json> steps = steps_of(normalizer, "normalizers");
    const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMarker}};
    const json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMarker}};
    const bool prepends = steps.size() == 2 && steps[0] == prepend;
    options.in_normalizer = !steps.empty();
    if (options.in_normalizer && (steps.size() != (prepends ? 2 : 1) || steps.back() != replace)) {
      refuse("normalizer", "null, Replace of \" \" by \"▁\", or this after Prepend of \"▁\", for a BPE over characters",
             normalizer);
    }
    if (prepends) options.prefix = Prefix::kEven;
    const std::string type = type_of(pre_tokenizer);
    if (options.in_normalizer) {
      const json pattern = type == "Split" ? pre_tokenizer.value("pattern", json()) : json();
      if (!pre_tokenizer.is_null() && pattern != json{{"String", " "}}) {
        refuse("pre_tokenizer", "null or a Split at \" \" after a Replace of \" \"", pre_tokenizer);
      }
      return;
    }
    if (type != "Metaspace")
      refuse("pre_tokenizer", "Metaspace for a BPE without ByteLevel and Replace", pre_tokenizer);
    StrictObject step = typed(pre_tokenizer, "pre_tokenizer");
    options.prefix = read_prefix(step);
    options.splits = step.boolean("split", true);
    step.finish();
  }
  void read_normalizer(const json& value) {
    const bool bytes = out_.options.pipeline == Pipeline::kByteLevelBpe;
    if (value.is_null()) {
      if (!bytes) refuse("normalizer", "a BertNormalizer for a WordPiece model", value);
      return;
    }
    const json& step = unwrap(value, "normalizer", "normalizers");
    const std::string type = type_of(step);
    StrictObject normalizer = typed(step, "normalizer");
    if (bytes && type == "NFC") {
      out_.options.byte_level.nfc = true;
    } else if (!bytes && type == "BertNormalizer") {
      expect(normalizer, "clean_text", true, "true");
      out_.options.tokenize_chinese_chars = normalizer.boolean("handle_chinese_chars", true);
      out_.options.letter_case = normalizer.boolean("lowercase", true) ? Case::kLower : Case::kKeep;
      const json* strip = normalizer.find("strip_accents");
      if (strip != nullptr && !strip->is_null())
        out_.options.strip_accents = normalizer.boolean("strip_accents", false);
    } else {
      refuse("normalizer", bytes ? "null or NFC for a BPE model" : "a BertNormalizer for a WordPiece model", value);
    }
    normalizer.finish();
  }
  void read_pre_tokenizer(const json& value) {
    const std::string key = "pre_tokenizer";
    const std::string type = type_of(value);
    if (out_.options.pipeline != Pipeline::kByteLevelBpe) {
      if (type_of(unwrap(value, key, "pretokenizers")) != "BertPreTokenizer") {
        refuse(key, "a BertPreTokenizer for a WordPiece model", value);
      }
      return;
    }
    if (type != "Sequence") return read_byte_level(value, key);
    const json steps = value.value("pretokenizers", json());
    if (!steps.is_array() || steps.empty()) refuse(key, "ByteLevel, after steps that split the text", value);
    for (size_t i = 0; i + 1 < steps.size(); ++i) {
      read_split_step(steps[i], key + ".pretokenizers[" + std::to_string(i) + "]");
    }
    read_byte_level(steps.back(), key + ".pretokenizers[" + std::to_string(steps.size() - 1) + "]");
    ByteLevelOptions& options = out_.options.byte_level;
    if (options.splits.empty()) return;
    if (options.add_prefix_space) refuse(key, "a ByteLevel without add_prefix_space after other steps", steps.back());
    const SplitStep& last = options.splits.back();
    if (options.use_regex || last.expression != kGpt2Expression) return;
    options.splits.pop_back();
    options.use_regex = true;  // the last step has the same expression, whose matches leave nothing out
  }
  void read_split_step(const json& value, const std::string& key) {
    const std::string type = type_of(value);
    if (type != "Split" && type != "Digits") refuse(key, "a Split or Digits, before a ByteLevel", value);
    StrictObject step = typed(value, key);
    SplitStep read;
    if (type == "Digits") {
      const bool each = step.boolean("individual_digits", false);
      read.kind = each ? SplitStep::Kind::kDigits : SplitStep::Kind::kContiguousDigits;
    } else {
      const json* pattern = step.find("pattern");
      read.expression = read_pattern(pattern == nullptr ? json() : *pattern, key + ".pattern");
      const std::string behavior = step.text("behavior", "");
      const bool invert = step.boolean("invert", false);
      const bool removes = behavior == "Removed" && invert;
      if (!(behavior == "Isolated" && !invert) && !removes) {
        refuse(key + ".behavior", "\"Isolated\", or \"Removed\" with \"invert\"", value);
      }
      if (removes) read.kind = SplitStep::Kind::kMatches;
    }
    step.finish();
    out_.options.byte_level.splits.push_back(std::move(read));
  }
  // {"Regex": ...}, or {"String": ...}, which stands for itself.
  std::string read_pattern(const json& pattern, const std::string& key) const {
    const bool is_object = pattern.is_object() && pattern.size() == 1 && pattern.begin()->is_string();
    const std::string kind = is_object ? pattern.begin().key() : "";
    if (kind != "Regex" && kind != "String") refuse(key, "a Regex or a String", pattern);
    std::string expression = pattern.begin()->get<std::string>();
    if (kind == "String") {
      std::string escaped;
      for (const char c : expression) {
        if (ascii_class(c) == Ascii::kPunctuation) escaped += '\\';
        escaped += c;
      }
      expression = std::move(escaped);
    }
    try {
      static_cast<void>(Expression(expression));
    } catch (const Error& error) {
      fail(kTokenizerJsonWhere, "{}: \"{}\" must be an expression that this program computes: {}", path_, key,
           error.what());
    }
    return expression;
  }
  void read_byte_level(const json& value, const std::string& key) {
    if (type_of(value) != "ByteLevel") refuse(key, "ByteLevel for a BPE model", value);
    StrictObject level = typed(value, key);
    level.find("trim_offsets");  // ignored: the post-processor's setting is used
    out_.options.byte_level.add_prefix_space = level.boolean("add_prefix_space", true);
    out_.options.byte_level.use_regex = level.boolean("use_regex", true);
    level.finish();
  }
  void read_post_processor(const json& value, const std::string& key) {
    const std::string type = type_of(value);
    if (type == "Sequence") {
      StrictObject sequence = typed(value, key);
      const json* steps = sequence.find("processors");
      if (steps == nullptr || !steps->is_array()) refuse(key + ".processors", "an array", value);
      for (size_t i = 0; i < steps->size(); ++i) {
        read_post_processor((*steps)[i], key + ".processors[" + std::to_string(i) + "]");
      }
      sequence.finish();
    } else if (type == "TemplateProcessing") {
      read_template(value, key);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      read_frame(value, key);
    } else if (type == "ByteLevel") {
      StrictObject level = typed(value, key);
      level.find("use_regex");
      read_trim(level);
      level.finish();
    } else {
      refuse(key, "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or a Sequence of them", value);
    }
  }
  // Reads the trimming of offsets from a RobertaProcessing or a ByteLevel; only one may trim.
  void read_trim(StrictObject& step) {
    const bool trims = step.boolean("trim_offsets", true), keeps = step.boolean("add_prefix_space", true);
    if (!trims) return;
    if (out_.options.pipeline != Pipeline::kByteLevelBpe) {
      const auto added = std::views::transform(out_.added, &AddedToken::content);
      if (std::ranges::any_of(out_.tokens, has_outer_space) || std::ranges::any_of(added, has_outer_space)) {
        refuse(step.path_of("trim_offsets"), "false for tokens with white space or \"Ġ\" at an end", true);
      }
    }
    ByteLevelOptions& options = out_.options.byte_level;
    if (options.trim_offsets) refuse(step.path_of("trim_offsets"), "true in at most one step", true);
    options.trim_offsets = true;
    options.trim_keeps_first_space = keeps;
  }
  void read_template(const json& value, const std::string& key) {
    if (out_.sequence) refuse(key, "the only template", value);
    StrictObject section = typed(value, key);
    const auto part = [&](const char* name) {
      const json* found = section.find(name);
      return found == nullptr ? json() : *found;
    };
    const json specials = part("special_tokens");
    out_.sequence.emplace();
    out_.sequence->single = read_pieces(part("single"), specials, key + ".single", {1, 0});
    out_.sequence->pair = read_pieces(part("pair"), specials, key + ".pair", {1, 1});
    section.finish();
  }
  // counts: how often each text is in the template
  std::vector<SequenceTemplate::Piece> read_pieces(const json& value, const json& specials, const std::string& key,
                                                   std::array<int, 2> counts) const {
    if (!value.is_array()) refuse(key, "an array", value);
    std::vector<SequenceTemplate::Piece> pieces;
    for (const json& item : value) {
      const bool special = item.is_object() && item.contains("SpecialToken");
      if (!special && !(item.is_object() && item.contains("Sequence"))) {
        refuse(key, "of SpecialToken and Sequence", item);
      }
      StrictObject piece = object(special ? item["SpecialToken"] : item["Sequence"], key);
      const std::string id = piece.text("id", "");
      const auto type = static_cast<uint8_t>(piece.integer("type_id", 0, 0, UINT8_MAX));
      piece.finish();
      if (!special) {
        if (id != "A" && id != "B") refuse(key + ".id", "\"A\" or \"B\"", id);
        --counts[id == "A" ? 0 : 1];
        pieces.push_back({id == "A" ? SequenceTemplate::Part::kFirst : SequenceTemplate::Part::kSecond, 0, type});
        continue;
      }
      const json token = specials.is_object() ? specials.value(id, json()) : json();
      const json ids = token.is_object() ? token.value("ids", json()) : json();
      if (!ids.is_array() || ids.size() != 1 || !is_id(ids[0])) {
        refuse(key, "of special tokens with one id each in \"special_tokens\"", item);
      }
      pieces.push_back({SequenceTemplate::Part::kSpecial, ids[0].get<int32_t>(), type});
    }
    if (!value.empty() && counts != std::array{0, 0}) refuse(key, "each text once", value);  // empty: not used
    return pieces;
  }
  // BertProcessing, RobertaProcessing
  void read_frame(const json& value, const std::string& key) {
    if (out_.sequence) refuse(key, "the only template", value);
    const bool roberta = type_of(value) == "RobertaProcessing";
    StrictObject section = typed(value, key);
    const int32_t cls = read_frame_token(section.find("cls"), key + ".cls");
    const int32_t sep = read_frame_token(section.find("sep"), key + ".sep");
    if (roberta) read_trim(section);
    section.finish();
    out_.sequence = roberta ? roberta_template(cls, sep) : bert_template(cls, sep);
  }
  // ["[SEP]", 102]
  int32_t read_frame_token(const json* value, const std::string& key) const {
    if (value == nullptr || !value->is_array() || value->size() != 2 || !is_id((*value)[1])) {
      refuse(key, "a token and its id", value == nullptr ? json() : *value);
    }
    return (*value)[1].get<int32_t>();
  }
  void read_decoder(const json& value) {
    DecodingOptions& decoding = out_.options.decoding;
    if (value.is_null()) {
      decoding.join = DecodingOptions::Join::kSpaces;
      return;
    }
    if (is_fallback_) return read_fallback_decoder(value);
    const json& step = unwrap(value, "decoder", "decoders");
    StrictObject decoder = object(step, "decoder");
    const std::string type = decoder.text("type", "");
    if (type == "WordPiece") {
      decoding.join = DecodingOptions::Join::kWordPieces;
      expect(decoder, "prefix", "##", "\"##\"");
      decoding.cleanup = decoder.boolean("cleanup", true);
    } else if (type == "ByteLevel") {
      decoding.join = DecodingOptions::Join::kBytes;
      for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) decoder.find(key);
    } else {
      refuse("decoder", "null, WordPiece or ByteLevel", value);
    }
    decoder.finish();
  }
  // Replace, ByteFallback, Fuse and perhaps Strip.
  void read_fallback_decoder(const json& value) {
    std::vector<json> steps = steps_of(value, "decoders");
    DecodingOptions& decoding = out_.options.decoding;
    decoding.join = DecodingOptions::Join::kFallback;
    if (steps.size() == 4 && type_of(steps[3]) == "Strip") {
      StrictObject strip = typed(steps[3], "decoder.decoders[3]");
      expect(strip, "content", " ", "\" \"");
      expect(strip, "stop", 0, "0");
      decoding.strip_left = static_cast<int>(strip.integer("start", 0, 0, 1000));
      strip.finish();
      steps.pop_back();
    }
    const json replace = {{"type", "Replace"}, {"pattern", {{"String", kSpaceMarker}}}, {"content", " "}};
    if (steps != std::vector<json>{replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}) {
      refuse("decoder", "null, or Replace of \"▁\" by \" \", ByteFallback, Fuse and perhaps Strip", value);
    }
  }
  void read_added(const json& value) {
    if (value.is_null()) return;
    if (!value.is_array()) refuse("added_tokens", "an array", value);
    for (const json& item : value) {
      AddedToken token = read_added_token(item, path_, "added_tokens");
      const json id = item.is_object() ? item.value("id", json()) : json();
      if (!is_id(id)) refuse("added_tokens", "of tokens with an id", item);
      token.id = id.get<int32_t>();
      out_.added.push_back(std::move(token));
    }
  }
  void read_padding(const json& value) {
    if (value.is_null()) return;
    out_.pad_token = object(value, "padding").text("pad_token", "");
  }

  const json json_;
  TokenizerJson out_;
  bool is_fallback_ = false;
};

}  // namespace

std::optional<Merge> split_merge(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) return std::nullopt;
  return Merge(line.substr(0, space), line.substr(space + 1));
}

std::vector<std::string> read_token_ids(const json& vocab, const std::string& where) {
  if (!vocab.is_object())
    fail(kTokenizerJsonWhere, "{}: \"vocab\" must be an object of tokens and ids, got {}", where, vocab.type_name());
  std::vector<std::string> tokens(vocab.size());
  std::vector<bool> seen(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < vocab.size();
    if (!fits || seen[id.get<size_t>()]) {
      fail(kTokenizerJsonWhere, "{}: the ids of {} tokens must be 0 to {}, each once, got {} for \"{}\"", where,
           vocab.size(), vocab.size() - 1, id.dump(), token);
    }
    seen[id.get<size_t>()] = true;
    tokens[id.get<size_t>()] = token;
  }
  return tokens;
}

TokenizerJson read_tokenizer_json(const std::string& path) { return Reader(path).read(); }

}  // namespace rf::text
