// Byte-level BPE as in `tokenizers` with its ByteLevel pre-tokenizer, GPT-2's tokenizer (spec R-TOK-08): NFC if
// configured, added tokens of the normalised text, a space at the front, the steps that split it (other models'
// expressions, digits), GPT-2's words, byte pairs. The source of a token with a part of a character is the whole
// character. With trim_offsets the source excludes white space at both ends of a token.
//
// Text that normalisation does not change (nearly all text) is encoded without a copy; other text is rewritten together
// with the source of each byte.
#include <algorithm>

#include "models/byte_pair_model.h"
#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"
#include "splitters/split_steps.h"
#include "tokenizer/encoding_writer.h"
#include "tokenizer/trimmed_source.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

constexpr size_t kEncodedStretchBytes = size_t{1} << 16;  // at least

// White space at the ends of a token of the model, in bytes; only the ASCII space is trimmed there.
Trimmed trimmed_of_piece(std::string_view bytes) {
  const size_t first = std::min(bytes.find_first_not_of(' '), bytes.size());
  const size_t last = bytes.find_last_not_of(' ') + 1;  // 0 if the token contains nothing else
  return {static_cast<int32_t>(first), static_cast<int32_t>(bytes.size() - last)};
}

// Encodes one text. Holds buffers.
class ByteLevelEncoder {
 public:
  ByteLevelEncoder(const BytePairModel& model, const ByteLevelOptions& options, const AddedTokens& added,
                   const SplitSteps& steps, std::string_view text, size_t max_tokens,
                   BytePairModel::Workspace& workspace, Encoding& out)
      : model_(model),
        options_(options),
        added_(added),
        parts_(steps, options.use_regex),
        source_(text),
        out_(out),
        writer_(out, text.size(), max_tokens),
        workspace_(workspace) {}

  void encode() {
    for_each_section(
        added_.raw(), source_,
        [&](std::string_view part, int32_t byte, int32_t character) { encode_part(part, byte, character); },
        [&](const FoundToken& found) { append_added(found, found.place); }, [&] { return is_full(); });
    out_.replaced_bytes += replaced_;
  }

 private:
  // Normalised text and its source: `spans` for each byte; if null, the text is the source from (byte, character) on,
  // possibly with a space added to the front.
  struct Mapped {
    std::string_view text;
    const SourceSpan* spans;
    int32_t byte, character;
    bool spaced = false;
  };
  struct ByteLevelWord {
    std::string_view text;
    bool ascii;
  };
  bool is_full() const { return writer_.is_full(); }
  // A stretch of the text between added tokens, and its start.
  void encode_part(std::string_view part, int32_t byte, int32_t character) {
    for (size_t begin = 0; begin < part.size() && !is_full();) {
      const size_t end = stretch_end(part, begin);
      const std::string_view stretch = part.substr(begin, end - begin);
      encode_stretch(stretch, byte + static_cast<int32_t>(begin), character, begin == 0);
      begin = end;
      if (end == part.size()) return;
      for (std::string_view rest = stretch; !rest.empty(); ++character) take_utf8(rest);
    }
  }
  bool is_unchanged(std::string_view part) const {
    while (!part.empty()) {
      const Decoded decoded = take_utf8(part);
      const bool may_change = options_.nfc && decoded.code >= 0x80 && may_change_under_nfc(decoded.code);
      if (!decoded.valid || may_change) return false;
    }
    return true;
  }
  void normalize(std::string_view part, int32_t byte, int32_t character) {
    chars_.clear();
    while (!part.empty()) {
      const Decoded decoded = take_utf8(part);
      if (!decoded.valid) ++replaced_;
      chars_.push_back({decoded.code, {byte, byte + decoded.length, character, character + 1}});
      byte += decoded.length;
      ++character;
    }
    if (options_.nfc) to_nfc(chars_);
    normalized_.clear();
    normalized_spans_.clear();
    for (const SourcedChar& c : chars_) {
      append_utf8(c.code, normalized_);
      normalized_spans_.resize(normalized_.size(), c.source);
    }
  }
  // The end of the stretch that begins there, before a separator after a letter. Neither a change by NFC nor a match of
  // GPT-2's expression crosses such a place, so at most a stretch must be rewritten.
  size_t stretch_end(std::string_view part, size_t begin) const {
    if (!options_.use_regex || !added_.may_divide() || !options_.splits.empty()) return part.size();
    const auto next = [&](size_t from) { return next_separator(part, from); };
    for (size_t at = next(begin + kEncodedStretchBytes); at < part.size(); at = next(at + 1)) {
      const char32_t before = decode_last_utf8(part.substr(begin, at - begin)).code;
      if ((regex_classes(before) & kLetterClass) != 0 && !may_change_under_nfc(before)) return at;
    }
    return part.size();
  }
  // `is_front`: it is the beginning of the part.
  void encode_stretch(std::string_view stretch, int32_t byte, int32_t character, bool is_front) {
    Mapped whole{stretch, nullptr, byte, character};
    if (!is_unchanged(stretch)) {
      normalize(stretch, byte, character);
      whole = {normalized_, normalized_spans_.data(), 0, 0};
    }
    if (added_.normalized().empty()) return encode_words(whole, is_front);
    for_each_section(
        added_.normalized(), whole.text,
        [&](std::string_view text, int32_t begin, int32_t first_char) {
          const SourceSpan* const spans = whole.spans == nullptr ? nullptr : whole.spans + begin;
          encode_words({text, spans, byte + begin, character + first_char}, is_front || begin > 0);
        },
        [&](const FoundToken& found) {
          const SourceSpan& place = found.place;
          if (whole.spans == nullptr) {
            append_added(found, {byte + place.byte_begin, byte + place.byte_end, character + place.char_begin,
                                 character + place.char_end});
          } else {
            const SourceSpan &first = whole.spans[place.byte_begin], &last = whole.spans[place.byte_end - 1];
            append_added(found, {first.byte_begin, last.byte_end, first.char_begin, last.char_end});
          }
        },
        [&] { return is_full(); });
  }
  // With add_prefix_space a space is added to the front; it has the same source as the first character.
  void encode_words(const Mapped& mapped, bool is_front) {
    if (mapped.text.empty()) return;
    if (!options_.add_prefix_space || !is_front || mapped.text.front() == ' ') return cut_words(mapped);
    spaced_.assign(1, ' ').append(mapped.text);
    if (mapped.spans == nullptr) return cut_words({spaced_, nullptr, mapped.byte, mapped.character, true});
    spaced_spans_.assign(1, mapped.spans[0]);
    spaced_spans_.insert(spaced_spans_.end(), mapped.spans, mapped.spans + mapped.text.size());
    cut_words({spaced_, spaced_spans_.data(), 0, 0});
  }
  void cut_words(const Mapped& words) {
    Mapped rest = words;
    parts_.begin(rest.text);
    while (!rest.text.empty() && !is_full()) {
      const SplitParts::Part word = parts_.next();
      const std::string_view text = rest.text.substr(0, word.end);
      size_t at = 0;
      int32_t character = rest.character;
      if (word.is_omitted) {
        character += count_characters(text);
      } else {
        model_.cut(text, workspace_, [&](const BytePairModel::Piece& piece) {
          append_piece(rest, {text, word.ascii}, at, piece, character);
          at += piece.length;
          return !is_full();
        });
      }
      if (rest.spans != nullptr) {
        rest.spans += text.size();
      } else {
        rest.byte += static_cast<int32_t>(text.size()) - (rest.spaced ? 1 : 0);
        rest.character = character;
      }
      rest.spaced = false;
      rest.text.remove_prefix(text.size());
    }
  }
  // Passes on the piece at byte `at` of a word. `character`: the index in the source at that byte; afterwards the index
  // after the piece.
  void append_piece(const Mapped& mapped, const ByteLevelWord& word, size_t at, const BytePairModel::Piece& piece,
                    int32_t& character) {
    const size_t length = piece.length;
    const std::string_view slice = word.text.substr(at, length);
    const Trimmed trimmed = options_.trim_offsets ? trimmed_of_piece(slice) : Trimmed{};
    if (mapped.spans != nullptr) {
      const SourceSpan &first = mapped.spans[at], &last = mapped.spans[at + length - 1];
      append(piece.id, {first.byte_begin, last.byte_end, first.char_begin, last.char_end}, trimmed, at == 0);
      return;
    }
    const size_t added = mapped.spaced ? 1 : 0;  // the added space, whose source is the character after it
    const size_t front = std::max(at, added);
    size_t begin = front, end = std::max(at + length, added + 1);
    int32_t characters = (word.ascii ? static_cast<int32_t>(length) : count_characters(slice)) - (at < added ? 1 : 0);
    if (!word.ascii || at < added) {  // all characters that it overlaps
      while (!begins_character(mapped.text[begin])) --begin;
      while (end < mapped.text.size() && !begins_character(mapped.text[end])) ++end;
    }
    const int32_t first = begin == front ? character : character - 1;
    character += characters;
    append(piece.id,
           {mapped.byte + static_cast<int32_t>(begin - added), mapped.byte + static_cast<int32_t>(end - added), first,
            std::max(character, first + 1)},
           trimmed, at == 0);
  }
  void append_added(const FoundToken& found, const SourceSpan& source) {
    append(found.id, source, options_.trim_offsets ? trimmed_of_added(found) : Trimmed{}, true);
  }
  void append(int32_t id, SourceSpan source, const Trimmed& trimmed, bool starts_word) {
    if (id < 0) return;  // a byte that the vocabulary lacks does not leave a token
    if (trimmed.leading + trimmed.trailing > 0) trim(trimmed, writer_.count() == 0, options_, source_, source);
    writer_.append(id, source, starts_word);
  }

  const BytePairModel& model_;
  const ByteLevelOptions& options_;
  const AddedTokens& added_;
  SplitParts parts_;
  const std::string_view source_;
  Encoding& out_;
  EncodingWriter writer_;
  int64_t replaced_ = 0;

  BytePairModel::Workspace& workspace_;
  std::vector<SourcedChar> chars_;
  std::string normalized_, spaced_;
  std::vector<SourceSpan> normalized_spans_, spaced_spans_;
};

}  // namespace

void encode_byte_level(const BytePairModel& model, const ByteLevelOptions& options, const AddedTokens& added,
                       const SplitSteps& steps, std::string_view text, size_t max_tokens, Encoding& out) {
  thread_local BytePairModel::Workspace workspace;
  ByteLevelEncoder(model, options, added, steps, text, max_tokens, workspace, out).encode();
}

namespace pipelines {

const PipelineEntry& byte_level_bpe() {
  constexpr char kEnd[] = "<|endoftext|>";
  static const PipelineEntry entry = {
      .name = "byte-level-bpe",
      .model = PieceModel::kBytePairs,
      .classes = {{.name = "GPT2Tokenizer",
                   .model_type = "gpt2",
                   .special = {.pad = "", .unk = kEnd, .cls = "", .sep = "", .mask = "", .bos = kEnd, .eos = kEnd},
                   .frame = nullptr},
                  {.name = "RobertaTokenizer",
                   .other_names = {"BartTokenizer", "LEDTokenizer", "LongformerTokenizer", "MvpTokenizer"},
                   .model_type = "roberta",
                   .special = roberta_names("<unk>"),
                   .frame = roberta_template,
                   .trims_offsets = true},
                  {.name = "DebertaTokenizer",
                   .model_type = "deberta",
                   .special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[CLS]", "[SEP]"},
                   .frame = roberta_template}},
      .saved_class = kPlainClass,
      .normalize = [](const TokenizerOptions& options, std::string_view text) {
        return options.byte_level.nfc ? to_nfc(text) : std::string(text);
      }};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
