// WordPiece: every word is split, from its front, into the longest pieces of the vocabulary; a word that cannot be
// split completely is [UNK].
#pragma once

#include <cstdint>
#include <string_view>

#include "models/piece_trie.h"
#include "splitters/splitter.h"
#include "tokenizer/encoding_writer.h"
#include "tokenizer/trimmed_source.h"

namespace rf::text {

// Cuts words into pieces and appends them to an encoding, until it has `max_tokens` more.
class PieceWriter : public WordSink {
 public:
  // `text_bytes`: the size of the text that the words come from.
  PieceWriter(const PieceTrie& trie, const SpecialIds& special, int max_word_chars, size_t text_bytes,
              size_t max_tokens, Encoding& out)
      : trie_(trie),
        special_(special),
        max_word_chars_(max_word_chars),
        out_(out),
        writer_(out, text_bytes, max_tokens) {
    full_ = max_tokens == 0;
  }

  // The following words have offsets into a part of the text that begins there.
  void set_origin(int32_t byte, int32_t character) {
    byte_origin_ = byte;
    char_origin_ = character;
  }

  // From now on, sources of added tokens are trimmed; `text` is the whole text.
  void trim_added(const ByteLevelOptions& options, std::string_view text) {
    trim_ = &options;
    text_ = text;
  }

  // An added token; its source refers to the whole text.
  void take_added(const FoundToken& found, SourceSpan source) {
    if (full_) return;
    set_origin(0, 0);
    if (trim_ != nullptr) trim(trimmed_of_added(found), writer_.count() == 0, *trim_, text_, source);
    append(found.id, source, true);
    stop_at_limit();
  }

  void take(const Word& word) override {
    if (full_) return;
    append_word(word);
    stop_at_limit();
  }

 private:
  [[gnu::always_inline]] void append_word(const Word& word) {
    int32_t whole = id_of(special_, word.special.value_or(SpecialRole::kUnk));  // the token for the whole word
    if (!word.special && word.chars <= max_word_chars_) {
      if (word.token >= 0) {
        whole = word.token;
      } else {
        const size_t before = out_.size();
        if (cut(word)) return;
        out_.resize(before);
      }
    }
    append(whole, word.source(), true);
  }

  // The last word may have produced more tokens than requested.
  [[gnu::always_inline]] void stop_at_limit() {
    if (!writer_.is_full()) return;
    out_.resize(writer_.end());
    full_ = true;
  }

  // False if no piece fits at some place of the word; the pieces before it were already appended.
  [[gnu::always_inline]] bool cut(const Word& word) {
    PieceTrie::Root root = PieceTrie::kWordStart;
    int32_t first_char = 0;
    for (size_t first = 0; first < word.text.size(); root = PieceTrie::kContinuation) {
      const PieceTrie::Match piece = trie_.longest(word.text.substr(first), root);
      if (piece.id < 0) return false;
      append(piece.id, word.source(first, first + piece.length, first_char), first == 0);
      first += piece.length;
    }
    return true;
  }

  [[gnu::always_inline]] void append(int32_t id, const SourceSpan& source, bool starts_word) {
    const SourceSpan place{source.byte_begin + byte_origin_, source.byte_end + byte_origin_,
                           source.char_begin + char_origin_, source.char_end + char_origin_};
    writer_.append(id, place, starts_word);
  }

  const PieceTrie& trie_;
  const SpecialIds& special_;
  const int64_t max_word_chars_;
  Encoding& out_;
  EncodingWriter writer_;
  int32_t byte_origin_ = 0, char_origin_ = 0;
  const ByteLevelOptions* trim_ = nullptr;  // null: sources of added tokens are not trimmed
  std::string_view text_;
};

}  // namespace rf::text
