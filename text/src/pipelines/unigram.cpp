// Unigram as in `tokenizers` (spec R-TOK-10), for vocabularies of SentencePiece (XLM-R, T5, ALBERT, DeBERTa-v3): added
// tokens, the normalizers, added tokens of the normalised text, words at white space and at "▁", the most likely tokens
// of each. The source of the "▁" in front is the character after it.

#include "models/byte_pair_model.h"
#include "models/unigram_model.h"
#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"
#include "tokenizer/encoding_writer.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

using Prefix = ByteFallbackOptions::Prefix;

constexpr char32_t kMarker = 0x2581;  // ▁

class UnigramEncoder {
 public:
  UnigramEncoder(const UnigramModel& model, const UnigramOptions& options, const AddedTokens& added,
                 std::string_view text, size_t max_tokens, UnigramModel::Workspace& workspace, Encoding& out)
      : model_(model),
        options_(options),
        added_(added),
        source_(text),
        workspace_(workspace),
        out_(out),
        writer_(out, text.size(), max_tokens) {}

  void encode() {
    for_each_section(
        added_.raw(), source_,
        [&](std::string_view part, int32_t byte, int32_t character) { encode_part(part, byte, character); },
        [&](const FoundToken& found) { writer_.append(found.id, found.place, true); },
        [&] { return writer_.is_full(); });
  }

 private:
  void encode_part(std::string_view part, int32_t byte, int32_t character) {
    chars_.clear();
    chars_.reserve(part.size());
    for (; !part.empty(); ++character) {
      const Decoded decoded = take_utf8(part);
      if (!decoded.valid) ++out_.replaced_bytes;
      chars_.push_back({decoded.code, byte, byte + decoded.length, character});
      byte += decoded.length;
    }
    model_.normalizers().normalize(chars_);
    if (added_.normalized().empty()) return encode_section(0, chars_.size());
    std::string text;
    for (const NormalizedChar& c : chars_) append_utf8(c.code, text);
    for_each_section(
        added_.normalized(), text,
        [&](std::string_view section, int32_t, int32_t first) {
          encode_section(static_cast<size_t>(first), static_cast<size_t>(first + count_characters(section)));
        },
        [&](const FoundToken& found) {
          const auto first = static_cast<size_t>(found.place.char_begin);
          writer_.append(found.id, source(first, static_cast<size_t>(found.place.char_end - 1)), true);
        },
        [&] { return writer_.is_full(); });
  }
  void encode_section(size_t begin, size_t end) {
    if (!options_.split_spaces && !options_.split_punctuation) return encode_run(begin, end);
    const auto is_space = [&](size_t at) { return options_.split_spaces && is_white_space(chars_[at].code); };
    const auto is_single = [&](size_t at) {
      return options_.split_punctuation && bert_character(chars_[at].code).has(BertCharacter::kPunctuation);
    };
    while (begin < end && !writer_.is_full()) {
      size_t last = begin;
      while (last < end && !is_space(last) && !is_single(last)) ++last;
      if (last == begin && is_single(begin)) ++last;
      if (last > begin) encode_run(begin, last);
      begin = last < end && is_space(last) ? last + 1 : last;
    }
  }
  // Characters without a break by WhitespaceSplit.
  void encode_run(size_t begin, size_t end) {
    if (begin == end) return;
    const NormalizedChar& front = chars_[begin];
    const bool wanted =
        options_.prefix == Prefix::kAlways || (options_.prefix == Prefix::kFirst && front.byte_begin == 0);
    bool prefixed = wanted && front.code != U' ' && front.code != kMarker;
    while (begin < end && !writer_.is_full()) {
      word_.clear();
      if (prefixed) word_ += kSpaceMarker;
      size_t last = begin;
      do {
        const char32_t code = chars_[last++].code;
        if (code < 0x80 && code != U' ') {
          word_.push_back(static_cast<char>(code));
        } else {
          append_utf8(code == U' ' ? kMarker : code, word_);
        }
      } while (last < end && !(options_.splits && (chars_[last].code == U' ' || chars_[last].code == kMarker)));
      encode_word(begin, prefixed);
      prefixed = false;
      begin = last;
    }
  }
  // `first`: its first character; `prefixed`: after a "▁" that is not in the text.
  void encode_word(size_t first, bool prefixed) {
    size_t byte = 0, index = 0, next_byte = 0, next_index = 0;  // the piece's characters in the word
    for (const UnigramModel::Piece& piece : model_.cut(word_, workspace_)) {
      if (writer_.is_full()) return;
      if (piece.begin != byte) {
        byte = next_byte;
        index = next_index;
      }
      const std::string_view text = std::string_view(word_).substr(piece.begin, piece.end - piece.begin);
      next_byte = piece.end;
      next_index = index + static_cast<size_t>(count_characters(text));
      const auto place = [&](size_t i) { return first + i - (prefixed && i > 0 ? 1 : 0); };
      writer_.append(piece.id, source(place(index), place(next_index - 1)), piece.begin == 0);
    }
  }
  SourceSpan source(size_t first, size_t last) const {
    const NormalizedChar &begin = chars_[first], &end = chars_[last];
    return {begin.byte_begin, end.byte_end, begin.character, end.character + 1};
  }

  const UnigramModel& model_;
  const UnigramOptions& options_;
  const AddedTokens& added_;
  const std::string_view source_;
  UnigramModel::Workspace& workspace_;
  Encoding& out_;
  EncodingWriter writer_;
  std::vector<NormalizedChar> chars_;
  std::string word_;
};

}  // namespace

void encode_unigram(const UnigramModel& model, const UnigramOptions& options, const AddedTokens& added,
                    std::string_view text, size_t max_tokens, Encoding& out) {
  thread_local UnigramModel::Workspace workspace;
  UnigramEncoder(model, options, added, text, max_tokens, workspace, out).encode();
}

namespace pipelines {

const PipelineEntry& unigram() {
  static const PipelineEntry entry = {.name = "unigram",
                                      .model = PieceModel::kUnigram,
                                      .normalize = [](const TokenizerOptions& options, std::string_view text) {
                                        return NormalizerChain(options.unigram->normalizers).normalize(text);
                                      }};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
