// A complete tokenizer: a splitter makes words, a model splits them into tokens.
#include "rf/text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>

#include "files/tokenizer_files.h"
#include "models/byte_alphabet.h"
#include "models/byte_pair_model.h"
#include "models/unigram_model.h"
#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "rf/text/decoding_stream.h"

namespace rf::text {
namespace {

using Part = SequenceTemplate::Part;
using Piece = SequenceTemplate::Piece;

// And the special tokens of the vocabulary that the caller does not describe, as `transformers` adds them.
std::vector<AddedToken> with_specials(std::vector<AddedToken> added, const Vocabulary& vocabulary) {
  for (const SpecialRole role : kSpecialRoles) {
    const std::string& content = name_of(vocabulary.special_names(), role);
    const bool is_known = std::ranges::find(added, content, &AddedToken::content) != added.end();
    if (!content.empty() && !is_known) added.push_back({content, id_of(vocabulary.special(), role), true});
  }
  return added;
}

// The form in which the pipeline searches a `normalized` added token.
std::function<std::string(std::string_view)> normalizer_of(const TokenizerOptions& options) {
  return [&options](std::string_view text) {
    const auto normalize = options.pipeline.entry().normalize;
    if (normalize == nullptr) {
      fail("added_tokens", "\"normalized\" must be false in the pipeline {}, got true for \"{}\"",
           name(options.pipeline), text);
    }
    return normalize(options, text);
  };
}

void check_options(const TokenizerOptions& options) {
  const PipelineEntry& pipeline = options.pipeline.entry();
  if (pipeline.model == PieceModel::kUnigram && options.unigram == nullptr) {
    fail("tokenizer", "the pipeline {} must have the options of a Unigram model, got none", pipeline.name);
  }
  if (pipeline.model != PieceModel::kWordPieces) return;
  if (options.max_word_chars < 1) {
    fail("wordpiece", "max_word_chars must be at least 1, got {}", options.max_word_chars);
  }
  if (pipeline.segments_words && options.dictionary == nullptr) {
    fail("tokenizer", "pipeline {} must have a dictionary, got none", pipeline.name);
  }
  if (!pipeline.basic_tokenizer) return;
  const bool lower = options.letter_case == Case::kLower;
  if (strips_accents(options) != lower) {
    fail("tokenizer", "\"strip_accents\" must be null or {}, as \"do_lower_case\" is, in the pipeline {}, got {}",
         lower, pipeline.name, !lower);
  }
  if (!options.tokenize_chinese_chars) {
    fail("tokenizer", "\"tokenize_chinese_chars\" must be true in the pipeline {}, got false", pipeline.name);
  }
}

// Every special token must be in the vocabulary.
void check_template(const SequenceTemplate& sequence, const Vocabulary& vocabulary) {
  for (const auto* pieces : {&sequence.single, &sequence.pair}) {
    for (const Piece& piece : *pieces) {
      if (piece.part == Part::kSpecial && (piece.id < 0 || piece.id >= vocabulary.size())) {
        fail("tokenizer", "the post_processor must name tokens of the vocabulary, with ids below {}, got {}",
             vocabulary.size(), piece.id);
      }
    }
  }
}

constexpr size_t kKeptBytes = size_t{1} << 20;  // larger buffers of long texts are not kept

// EncodingWriter checks the size of one column only, so all must be equal.
void check_columns(const Encoding& out) {
  for (const size_t other : {out.byte_begin.size(), out.byte_end.size(), out.char_begin.size(), out.char_end.size(),
                             out.starts_word.size()}) {
    if (other == out.ids.size()) continue;
    fail("tokenize", "the columns of an encoding must have one length, got {} ids and {} in another column",
         out.ids.size(), other);
  }
}

// The splitter that a thread keeps between texts, for its buffers.
struct Scratch {
  uint64_t tokenizer = 0;  // the serial number of the tokenizer whose splitter it is; 0: none
  std::unique_ptr<Splitter> splitter;
};

std::atomic<uint64_t> g_serial{0};  // of the last tokenizer that was created

SequenceTemplate default_template(const SpecialIds& special) {
  return special.cls >= 0 && special.sep >= 0 ? bert_template(special.cls, special.sep) : plain_template();
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary, TokenizerOptions options)
    : Tokenizer(TokenizerParts{std::move(vocabulary), options, {}, {}, {}}) {}

Tokenizer::Tokenizer(TokenizerParts parts)
    : serial_(++g_serial),
      vocabulary_(std::move(parts.vocabulary)),
      options_(parts.options),
      added_(std::make_shared<const AddedTokens>(with_specials(std::move(parts.added), vocabulary_), vocabulary_,
                                                 normalizer_of(options_))),
      template_(parts.sequence_template.value_or(default_template(vocabulary_.special()))) {
  check_options(options_);
  check_template(template_, vocabulary_);
  if (has_byte_pairs(options_)) {
    byte_pairs_ = std::make_shared<const BytePairModel>(vocabulary_, parts.merges, options_);
    if (!has_byte_fallback(options_)) split_steps_ = std::make_shared<const SplitSteps>(options_.byte_level);
    merges_ = std::make_shared<const std::vector<Merge>>(std::move(parts.merges));
    return;
  }
  if (has_unigram(options_)) {
    unigram_ = std::make_shared<const UnigramModel>(vocabulary_, *options_.unigram);
    return;
  }
  vocabulary_.require({SpecialRole::kUnk}, "wordpiece");
  trie_ = std::make_shared<const PieceTrie>(vocabulary_);
}

Tokenizer Tokenizer::with_special(const std::vector<std::string>& tokens) const {
  Tokenizer out = *this;
  out.serial_ = ++g_serial;
  std::vector<AddedToken> added = added_tokens();
  for (const std::string& token : tokens) {
    std::erase_if(added, [&](const AddedToken& each) { return each.content == token; });
    added.push_back({.content = token, .id = vocabulary_.find(token), .special = true});
  }
  out.added_ = std::make_shared<const AddedTokens>(std::move(added), vocabulary_, normalizer_of(options_));
  return out;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const { return added_->tokens(); }

const std::vector<Merge>& Tokenizer::merges() const {
  static const std::vector<Merge> kNone;
  return merges_ == nullptr ? kNone : *merges_;
}

Tokenizer Tokenizer::load(const std::string& model_dir, const LoadOptions& options) {
  return Tokenizer(read_tokenizer(model_dir, options, Dictionaries::kLoaded));
}

Vocabulary load_vocabulary(const std::string& model_dir) {
  return read_tokenizer(model_dir, {}, Dictionaries::kLeftOut).vocabulary;
}

void Tokenizer::save(const std::string& model_dir) const { write_tokenizer(model_dir, *this); }

void Tokenizer::save_dictionary(const std::string& model_dir) const {
  if (options_.dictionary != nullptr) write_dictionary(model_dir, *options_.dictionary);
}

void Tokenizer::encode(std::string_view text, Encoding& out) const {
  encode_first(text, std::numeric_limits<size_t>::max(), out);
}

void Tokenizer::encode_first(std::string_view text, size_t max_tokens, Encoding& out) const {
  check_text_size(text);
  check_columns(out);
  const size_t first = out.size();
  const int64_t replaced_before = out.replaced_bytes;
  append_first(text, max_tokens, out);
  if (out.replaced_bytes > replaced_before && out.size() - first == max_tokens) {
    const auto end = max_tokens == 0 ? size_t{0} : static_cast<size_t>(out.byte_end.back());
    out.replaced_bytes = replaced_before + count_ill_formed(text.substr(0, end));
  }
}

// The pipeline determines how far the text is read, and so which sequences are counted.
void Tokenizer::append_first(std::string_view text, size_t max_tokens, Encoding& out) const {
  if (has_byte_fallback(options_)) {
    return encode_byte_fallback(*byte_pairs_, vocabulary_, options_.byte_fallback, *added_, text, max_tokens, out);
  }
  if (byte_pairs_) {
    return encode_byte_level(*byte_pairs_, options_.byte_level, *added_, *split_steps_, text, max_tokens, out);
  }
  if (unigram_) return encode_unigram(*unigram_, *options_.unigram, *added_, text, max_tokens, out);
  thread_local Scratch own;
  if (own.tokenizer != serial_) {
    own.splitter = options_.pipeline.entry().make_splitter(options_, vocabulary_, *trie_);
    own.tokenizer = serial_;
  }
  PieceWriter writer(*trie_, vocabulary_.special(), options_.max_word_chars, text.size(), max_tokens, out);
  if (options_.byte_level.trim_offsets) writer.trim_added(options_.byte_level, text);
  if (!added_->normalized().empty()) {
    options_.pipeline.entry().encode_normalized(*added_, options_, text, writer, out);
    return;
  }
  for_each_section(
      added_->raw(), text,
      [&](std::string_view part, int32_t byte, int32_t character) {
        writer.set_origin(byte, character);
        out.replaced_bytes += own.splitter->split(part, writer);
      },
      [&](const FoundToken& found) { writer.take_added(found, found.place); }, [&] { return writer.is_full(); });
  if (text.size() > kKeptBytes) own = {};
}

Encoding Tokenizer::encode_with_specials(std::string_view text) const {
  Encoding out;
  for (const Piece& piece : template_.single) {
    if (piece.part == Part::kSpecial) {
      out.append_special(piece.id);
    } else {
      encode(text, out);
    }
  }
  return out;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, SkipSpecials skip) const {
  return decode_beginning(ids, skip).text;
}

DecodedText Tokenizer::decode_beginning(const std::vector<int32_t>& ids, SkipSpecials skip) const {
  DecodingStream stream(*this, skip);
  for (const int32_t id : ids) stream.add(id);
  return stream.text();
}

std::optional<std::string_view> Tokenizer::shown(int32_t id, SkipSpecials skip) const {
  if (skip == SkipSpecials::kYes && added_->is_left_out(id)) return std::nullopt;
  const std::string* const added = added_->shown(id);
  return added != nullptr ? std::string_view(*added) : std::string_view(vocabulary_.token(id));
}

void Encoding::clear() {
  resize(0);
  replaced_bytes = 0;
}

void Encoding::reserve(size_t tokens) {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->reserve(tokens);
  starts_word.reserve(tokens);
}

void Encoding::resize(size_t tokens) {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->resize(tokens);
  starts_word.resize(tokens);
}

void Encoding::append(const Encoding& other, size_t begin, size_t end) {
  const auto append_column = [&](auto& to, const auto& from) {
    to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(begin), from.begin() + static_cast<ptrdiff_t>(end));
  };
  append_column(ids, other.ids);
  append_column(byte_begin, other.byte_begin);
  append_column(byte_end, other.byte_end);
  append_column(char_begin, other.char_begin);
  append_column(char_end, other.char_end);
  append_column(starts_word, other.starts_word);
}

void Encoding::append_special(int32_t id) {
  ids.push_back(id);
  for (std::vector<int32_t>* offsets : {&byte_begin, &byte_end, &char_begin, &char_end}) offsets->push_back(0);
  starts_word.push_back(1);
}

SequenceTemplate bert_template(int32_t cls, int32_t sep) {
  const Piece begin = {Part::kSpecial, cls, 0}, first = {Part::kFirst, 0, 0}, end = {Part::kSpecial, sep, 0};
  const Piece second = {Part::kSecond, 0, 1}, second_end = {Part::kSpecial, sep, 1};
  return {.single = {begin, first, end}, .pair = {begin, first, end, second, second_end}};
}

SequenceTemplate roberta_template(int32_t cls, int32_t sep) {
  const Piece begin{Part::kSpecial, cls, 0}, end{Part::kSpecial, sep, 0};
  return {.single = {begin, {Part::kFirst}, end}, .pair = {begin, {Part::kFirst}, end, end, {Part::kSecond}, end}};
}

SequenceTemplate plain_template() {
  return {.single = {{Part::kFirst}}, .pair = {{Part::kFirst}, {Part::kSecond, 0, 1}}};
}

Tokenizer byte_tokenizer() {
  constexpr int64_t kBytes = 256;
  std::vector<std::string> tokens;
  for (int64_t byte = 0; byte < kBytes; ++byte) tokens.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  const SpecialNames names;
  tokens.insert(tokens.end(), {names.pad, names.unk, names.cls, names.sep, names.mask});
  return Tokenizer(TokenizerParts{
      .vocabulary = Vocabulary(std::move(tokens), names, kBytes),
      .options = {.pipeline = Pipeline::kByteLevelBpe, .decoding = {.join = DecodingOptions::Join::kBytes}},
      .added = {},
      .merges = {}});
}

}  // namespace rf::text
