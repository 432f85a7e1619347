// A complete tokenizer: a splitter makes words, a model cuts them into tokens.
#include "rf/text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <functional>

#include "added_tokens/added_tokens.h"
#include "added_tokens/sections.h"
#include "files/tokenizer_files.h"
#include "models/byte_level_encoder.h"
#include "models/byte_pair_model.h"
#include "models/piece_trie.h"
#include "models/wordpiece.h"
#include "rf/io/error.h"
#include "splitters/bert_normalized_text.h"
#include "splitters/bert_splitter.h"
#include "splitters/legacy_splitter.h"
#include "splitters/roformer_splitter.h"
#include "splitters/wobert_splitter.h"
#include "tokenizer/decoder.h"
#include "unicode/nfc.h"

namespace rf::text {
namespace {

// The special tokens of the vocabulary, except those that the caller describes.
std::vector<AddedToken> with_specials(std::vector<AddedToken> added, const Vocabulary& vocabulary) {
  for (AddedToken& special : special_tokens(vocabulary)) {
    const bool described =
        std::ranges::any_of(added, [&](const AddedToken& t) { return t.content == special.content; });
    if (!described) added.push_back(std::move(special));
  }
  return added;
}

BertSplitterOptions bert_options(const TokenizerOptions& options) {
  const bool lower_case = options.letter_case == Case::kLower;
  return {lower_case, options.strip_accents.value_or(lower_case), options.tokenize_chinese_chars,
          options.max_word_chars};
}

// How the pipeline normalises an added token that is searched in normalised text.
std::function<std::string(std::string_view)> normalizer_of(const TokenizerOptions& options) {
  if (options.pipeline == Pipeline::kByteLevelBpe) {
    return [nfc = options.byte_level.nfc](std::string_view text) { return nfc ? to_nfc(text) : std::string(text); };
  }
  if (options.pipeline == Pipeline::kBert) {
    return [splitting = bert_options(options)](std::string_view text) {
      BertNormalizedText normalized(splitting);
      normalized.normalize(text, 0, 0);
      return normalized.text();
    };
  }
  return [pipeline = options.pipeline](std::string_view text) -> std::string {
    fail("added_tokens", "\"normalized\" must be false in the pipeline {}, got true for \"{}\"", name(pipeline), text);
  };
}

std::unique_ptr<Splitter> make_splitter(const TokenizerOptions& options, const Vocabulary& vocabulary,
                                        const PieceTrie& trie) {
  const BertSplitterOptions bert = bert_options(options);
  switch (options.pipeline) {
    case Pipeline::kBert:
      return std::make_unique<BertSplitter>(bert);
    case Pipeline::kBertLegacy:
      return std::make_unique<LegacySplitter>(options.letter_case, vocabulary.special_names());
    case Pipeline::kRoformer:
      return std::make_unique<RoformerSplitter>(bert.lower_case, bert.strip_accents, trie, options.dictionary);
    case Pipeline::kWobert:
      return std::make_unique<WobertSplitter>(options.letter_case, trie, options.dictionary);
    default:
      fail("tokenizer", "pipeline must be one that this program has, got {}", name(options.pipeline));
  }
}

// The two pipelines that follow Python's BasicTokenizer have one setting for letter case and accents.
void check_options(const TokenizerOptions& options) {
  if (options.pipeline == Pipeline::kByteLevelBpe) return;
  if (options.max_word_chars < 1) {
    fail("wordpiece", "max_word_chars must be at least 1, got {}", options.max_word_chars);
  }
  const bool segments = options.pipeline == Pipeline::kRoformer || options.pipeline == Pipeline::kWobert;
  if (segments && options.dictionary == nullptr) {
    fail("tokenizer", "pipeline {} must have a dictionary, got none", name(options.pipeline));
  }
  if (options.pipeline != Pipeline::kBertLegacy && options.pipeline != Pipeline::kWobert) return;
  const bool lower = options.letter_case == Case::kLower;
  if (options.strip_accents.value_or(lower) != lower) {
    fail("tokenizer", "\"strip_accents\" must be null or {}, as \"do_lower_case\" is, in the pipeline {}, got {}",
         lower, name(options.pipeline), !lower);
  }
  if (!options.tokenize_chinese_chars) {
    fail("tokenizer", "\"tokenize_chinese_chars\" must be true in the pipeline {}, got false", name(options.pipeline));
  }
}

// Every special token is one of the vocabulary.
void check_template(const SequenceTemplate& sequence, const Vocabulary& vocabulary) {
  for (const auto* pieces : {&sequence.single, &sequence.pair}) {
    for (const SequenceTemplate::Piece& piece : *pieces) {
      if (piece.part == SequenceTemplate::Part::kSpecial && (piece.id < 0 || piece.id >= vocabulary.size())) {
        fail("tokenizer", "the post_processor must name tokens of the vocabulary, with ids below {}, got {}",
             vocabulary.size(), piece.id);
      }
    }
  }
}

constexpr size_t kKeptBytes = size_t{1} << 20;  // buffers that longer texts have filled are not kept

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

Scratch& scratch() {
  thread_local Scratch scratch;
  return scratch;
}

// Numbers tokenizers from 1 in the order of their creation; copies have the number of the original.
uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

SequenceTemplate default_template(const SpecialIds& special) {
  return special.cls >= 0 && special.sep >= 0 ? bert_template(special.cls, special.sep) : plain_template();
}

// kBert with added tokens that are searched in the normalised text.
void encode_normalized(const AddedTokens& added, const TokenizerOptions& options, std::string_view text,
                       PieceWriter& writer, Encoding& out) {
  BertNormalizedText normalized(bert_options(options));
  for_each_section(
      added.raw(), text,
      [&](std::string_view part, int32_t byte, int32_t character) {
        out.replaced_bytes += normalized.normalize(part, byte, character);
        writer.set_origin(0, 0);
        Section section{};
        for (AddedTokenMatcher::Scan scan(added.normalized(), normalized.text()); scan.next(section);) {
          if (section.token == nullptr) {
            normalized.split(section.begin, section.end, writer);
          } else {
            writer.take_added(section.token->id, normalized.source(section.begin, section.end));
          }
        }
      },
      [&](const FoundToken& found) { writer.take_added(found.id, found.place); });
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary, TokenizerOptions options)
    : Tokenizer(TokenizerParts{std::move(vocabulary), options, {}, {}, {}}) {}

Tokenizer::Tokenizer(TokenizerParts parts)
    : serial_(next_serial()),
      vocabulary_(std::move(parts.vocabulary)),
      options_(parts.options),
      added_(std::make_shared<const AddedTokens>(with_specials(std::move(parts.added), vocabulary_), vocabulary_,
                                                 normalizer_of(options_))),
      template_(parts.sequence_template.value_or(default_template(vocabulary_.special()))) {
  check_options(options_);
  check_template(template_, vocabulary_);
  if (options_.pipeline == Pipeline::kByteLevelBpe) {
    byte_pairs_ = std::make_shared<const BytePairModel>(vocabulary_, parts.merges, options_.byte_level);
    merges_ = std::make_shared<const std::vector<Merge>>(std::move(parts.merges));
    return;
  }
  vocabulary_.require({SpecialRole::kUnk}, "wordpiece");
  trie_ = std::make_shared<const PieceTrie>(vocabulary_);
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return added_->tokens();
}

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

void Tokenizer::save(const std::string& model_dir) const {
  write_tokenizer(model_dir, *this);
}

void Tokenizer::save_dictionary(const std::string& model_dir) const {
  if (options_.dictionary != nullptr) write_dictionary(model_dir, *options_.dictionary);
}

void Tokenizer::encode(std::string_view text, Encoding& out) const {
  check_text_size(text);
  check_columns(out);
  Scratch& own = scratch();
  if (byte_pairs_ != nullptr) {
    ByteLevelEncoder encoder(*byte_pairs_, options_.byte_level, *added_, text, out);
    encoder.encode();
    out.replaced_bytes += encoder.replaced();
    return;
  }
  if (own.tokenizer != serial_) {
    own.splitter = make_splitter(options_, vocabulary_, *trie_);
    own.tokenizer = serial_;
  }
  PieceWriter writer(*trie_, vocabulary_.special(), options_.max_word_chars, text.size(), out);
  if (!added_->normalized().empty()) {
    encode_normalized(*added_, options_, text, writer, out);
    return;
  }
  for_each_section(
      added_->raw(), text,
      [&](std::string_view part, int32_t byte, int32_t character) {
        writer.set_origin(byte, character);
        out.replaced_bytes += own.splitter->split(part, writer);
      },
      [&](const FoundToken& found) { writer.take_added(found.id, found.place); });
  if (text.size() > kKeptBytes) own = {};
}

Encoding Tokenizer::encode_with_specials(std::string_view text) const {
  Encoding out;
  for (const SequenceTemplate::Piece& piece : template_.single) {
    if (piece.part == SequenceTemplate::Part::kSpecial) {
      out.append_special(piece.id);
    } else {
      encode(text, out);
    }
  }
  return out;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, SkipSpecials skip) const {
  std::vector<std::string_view> tokens;
  for (const int32_t id : ids) {
    if (skip == SkipSpecials::kYes && added_->is_left_out(id)) continue;
    const std::string* const added = added_->shown(id);
    tokens.push_back(added != nullptr ? *added : vocabulary_.token(id));
  }
  return join_tokens(tokens, options_.decoding);
}

}  // namespace rf::text
