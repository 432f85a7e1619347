// BPE over characters as in `tokenizers` for vocabularies of SentencePiece (Gemma, Llama 2, Mistral; spec R-TOK-09):
// added tokens, "▁" for each space and perhaps one in front, pairs merged over the whole text, and the bytes <0xNN> of
// a character that the vocabulary lacks. The source of a byte is its whole character, and that of the "▁" in front the
// next character.
//
// If no merge makes a token with a "▁" after another character (SentencePiece trains none), pairs are merged word by
// word, which gives the same tokens.
#include <algorithm>

#include "models/byte_pair_model.h"
#include "pipelines/pipeline.h"
#include "rf/io/utf8.h"
#include "tokenizer/encoding_writer.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

using Prefix = ByteFallbackOptions::Prefix;

std::string with_markers(std::string_view text, bool prefix) {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + kSpaceMarker.size());
  if (prefix) out += kSpaceMarker;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    out += text.substr(0, space);
    if (space == text.size()) break;
    out += kSpaceMarker;
    text.remove_prefix(space + 1);
  }
  return out;
}

// The text, or a copy with replacements in `buffer`.
std::string_view well_formed(std::string_view text, std::string& buffer) {
  if (is_utf8(text)) return text;
  buffer.clear();
  while (!text.empty()) append_utf8(take_utf8(text).code, buffer);
  return buffer;
}

constexpr size_t kCopiedBytes = size_t{1} << 16;  // at least

size_t character_bytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

class ByteFallbackEncoder {
 public:
  ByteFallbackEncoder(const BytePairModel& model, const Vocabulary& vocabulary, const ByteFallbackOptions& options,
                      const AddedTokens& added, std::string_view text, size_t max_tokens,
                      BytePairModel::Workspace& workspace, Encoding& out)
      : model_(model),
        vocabulary_(vocabulary),
        options_(options),
        added_(added),
        source_(text),
        out_(out),
        writer_(out, text.size(), max_tokens),
        workspace_(workspace) {}

  void encode() {
    for_each_section(
        added_.raw(), source_,
        [&](std::string_view part, int32_t byte, int32_t character) {
          out_.replaced_bytes += count_ill_formed(part);
          encode_part(part, {static_cast<size_t>(byte), character});
        },
        [&](const FoundToken& found) { append(found.id, found.place, true); }, [&] { return is_done_; });
  }

 private:
  struct Place {
    size_t byte;
    int32_t character;
  };
  // Text between added tokens. Each character of its normalised form is one of the source, except a "▁" in front.
  void encode_part(std::string_view part, Place start) {
    const bool in_front = options_.prefix == Prefix::kEven && !part.empty();
    if (added_.normalized().empty()) return encode_stretches(part, start, in_front);
    std::string buffer;
    const std::string_view clean = well_formed(part, buffer);
    const std::string whole = options_.in_normalizer ? with_markers(clean, in_front) : std::string(clean);
    Place last = start;  // where the section before began
    int32_t character = 0;
    const auto seek = [&](Place& place, int32_t from, int32_t to) {
      for (; from < to; ++from) {
        if (from > 0 || !in_front) advance(place);
      }
    };
    const auto begin_at = [&](int32_t first) {
      seek(last, character, first);
      character = first;
      return last;
    };
    for_each_section(
        added_.normalized(), whole,
        [&](std::string_view section, int32_t, int32_t first) {
          encode_section(section, begin_at(first), in_front && first == 0, true);
        },
        [&](const FoundToken& found) {
          const Place begin = begin_at(found.place.char_begin);
          Place end = begin;
          seek(end, found.place.char_begin, found.place.char_end);
          if (end.byte == begin.byte) advance(end);  // only the "▁" in front
          append(found.id, span(begin, end), true);
        },
        [&] { return is_done_; });
  }
  // Long texts are copied in stretches that end before a space after another character.
  void encode_stretches(std::string_view part, Place start, bool in_front) {
    const bool divides = cuts() && (options_.splits || !options_.ignore_merges);
    for (size_t begin = 0; begin < part.size() && !is_done_;) {
      size_t end = divides ? part.find(' ', begin + kCopiedBytes) : part.size();
      while (end < part.size() && (part[end - 1] == ' ' || part.substr(0, end).ends_with(kSpaceMarker))) {
        end = part.find(' ', end + 1);
      }
      end = std::min(end, part.size());
      std::string buffer, marked;
      std::string_view text = well_formed(part.substr(begin, end - begin), buffer);
      if (options_.in_normalizer) text = marked = with_markers(text, in_front && begin == 0);
      encode_section(text, begin == 0 ? start : place_, in_front && begin == 0, begin == 0);
      begin = end;
    }
  }
  // `has_prefix`: its first character is a "▁" that is not in the source.
  void encode_section(std::string_view section, Place start, bool has_prefix, bool is_first) {
    if (section.empty()) return;
    place_ = start;
    if (is_first) last_is_unknown_ = false;
    if (options_.in_normalizer) return encode_words(section, has_prefix);
    const bool wanted = options_.prefix == Prefix::kAlways || (options_.prefix == Prefix::kFirst && start.byte == 0);
    const bool adds = is_first && wanted && section.front() != ' ' && !section.starts_with(kSpaceMarker);
    encode_words(with_markers(section, adds), adds);
  }
  bool cuts() const { return options_.splits || model_.joins_no_markers(); }
  void encode_words(std::string_view text, bool has_prefix) {
    text_ = text;
    at_ = offset_ = 0;
    is_prefix_ = has_prefix;
    for (size_t begin = 0; begin < text.size() && !is_done_;) {
      size_t end = cuts() ? word_end(begin) : text.size();
      if (options_.splits && begin > 0) last_is_unknown_ = false;
      const size_t whole = options_.splits ? end : text.size();
      const bool is_whole = options_.ignore_merges && (options_.splits || begin == 0);
      const int32_t token = is_whole ? vocabulary_.find(text.substr(begin, whole - begin)) : -1;
      if (token >= 0 && token < vocabulary_.model_size()) {
        end = whole;
        append_piece({token, static_cast<uint32_t>(whole - begin)});
      } else {
        model_.cut(text.substr(begin, end - begin), workspace_, [&](const BytePairModel::Piece& piece) {
          append_piece(piece);
          return !is_done_;
        });
      }
      begin = end;
    }
  }
  // Before the next "▁"; without `splits`, before the next one after another character.
  size_t word_end(size_t begin) const {
    size_t at = begin;
    while (text_.substr(at).starts_with(kSpaceMarker)) {
      at += kSpaceMarker.size();
      if (options_.splits) break;
    }
    return std::min(text_.find(kSpaceMarker, at), text_.size());
  }
  void append_piece(const BytePairModel::Piece& piece) {
    const size_t end = offset_ + piece.length;
    const bool starts_word = offset_ == 0 || text_.substr(offset_).starts_with(kSpaceMarker);
    const Place begin = place_;
    while (at_ < end && at_ + character_bytes(text_[at_]) <= end) {
      at_ += character_bytes(text_[at_]);
      if (!is_prefix_) advance(place_);
      is_prefix_ = false;
    }
    offset_ = end;
    Place last = place_;
    if (at_ < end || last.byte == begin.byte) advance(last);  // a part of a character, or the "▁" in front
    const bool is_unknown = piece.id == model_.unknown();
    if (is_unknown && last_is_unknown_ && options_.fuse_unk) {
      out_.byte_end.back() = static_cast<int32_t>(last.byte);
      out_.char_end.back() = last.character;
      return;
    }
    last_is_unknown_ = is_unknown;
    append(piece.id, span(begin, last), starts_word);
  }
  void append(int32_t id, const SourceSpan& source, bool starts_word) {
    is_done_ = is_done_ || writer_.is_full();
    if (!is_done_) writer_.append(id, source, starts_word);
  }
  void advance(Place& place) const {
    place.byte += static_cast<size_t>(decode_utf8(source_.substr(place.byte)).length);
    ++place.character;
  }
  static SourceSpan span(const Place& begin, const Place& end) {
    return {static_cast<int32_t>(begin.byte), static_cast<int32_t>(end.byte), begin.character, end.character};
  }

  const BytePairModel& model_;
  const Vocabulary& vocabulary_;
  const ByteFallbackOptions& options_;
  const AddedTokens& added_;
  const std::string_view source_;
  Encoding& out_;
  EncodingWriter writer_;
  BytePairModel::Workspace& workspace_;

  std::string_view text_;       // of the section, with "▁"
  size_t at_ = 0, offset_ = 0;  // where its next character begins, and its next piece
  Place place_ = {0, 0};        // the source of that character
  bool is_prefix_ = false;      // which is not in the source
  bool last_is_unknown_ = false, is_done_ = false;
};

}  // namespace

void encode_byte_fallback(const BytePairModel& model, const Vocabulary& vocabulary, const ByteFallbackOptions& options,
                          const AddedTokens& added, std::string_view text, size_t max_tokens, Encoding& out) {
  thread_local BytePairModel::Workspace workspace;
  ByteFallbackEncoder(model, vocabulary, options, added, text, max_tokens, workspace, out).encode();
}

namespace pipelines {

const PipelineEntry& byte_fallback_bpe() {
  static const PipelineEntry entry = {.name = "byte-fallback-bpe",
                                      .model = PieceModel::kBytePairs,
                                      .normalize = [](const TokenizerOptions& options, std::string_view text) {
                                        const ByteFallbackOptions& level = options.byte_fallback;
                                        if (!level.in_normalizer) return std::string(text);
                                        return with_markers(text, level.prefix == Prefix::kEven && !text.empty());
                                      }};
  return entry;
}

}  // namespace pipelines
}  // namespace rf::text
