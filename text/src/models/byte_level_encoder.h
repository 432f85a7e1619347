// Byte-level BPE as in `tokenizers` with its ByteLevel pre-tokenizer: NFC if configured, added tokens of the normalised
// text, a space at the front, digits one by one if configured, GPT-2's words, byte pairs. The source of a token with a
// part of a character is the whole character. With trim_offsets the source excludes white space at both ends of a
// token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens/added_tokens.h"
#include "added_tokens/sections.h"
#include "models/byte_pair_model.h"
#include "rf/text/encoding.h"
#include "rf/text/tokenizer.h"
#include "tokenizer/encoding_writer.h"
#include "unicode/nfc.h"

namespace rf::text {

// Numbers of characters at the ends of a token that are excluded from its source.
struct Trimmed {
  int32_t leading = 0, trailing = 0;
};

// Encodes one text. Holds buffers.
class ByteLevelEncoder {
 public:
  ByteLevelEncoder(const BytePairModel& model, const ByteLevelOptions& options, const AddedTokens& added,
                   std::string_view text, size_t max_tokens, Encoding& out)
      : model_(model),
        options_(options),
        added_(added),
        source_(text),
        out_(out),
        writer_(out, text.size(), max_tokens),
        first_token_(out.size()),
        max_tokens_(max_tokens) {}

  // Appends the tokens of the text, or its first `max_tokens` tokens.
  void encode();
  int64_t replaced() const { return replaced_; }  // of the part that was read
  // For sections and for trimmed tokens: bytes compared and characters counted.
  int64_t steps() const { return steps_; }

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
  bool is_full() const { return out_.size() - first_token_ >= max_tokens_; }
  // A stretch of the text between added tokens, and its start.
  void encode_part(std::string_view part, int32_t byte, int32_t character);
  bool is_unchanged(std::string_view part) const;
  void normalize(std::string_view part, int32_t byte, int32_t character);
  size_t stretch_end(std::string_view part, size_t begin) const;
  void encode_stretch(std::string_view stretch, int32_t byte, int32_t character, bool is_front);
  void encode_words(const Mapped& mapped, bool is_front);
  void cut_words(const Mapped& words);
  void append_piece(const Mapped& mapped, const ByteLevelWord& word, size_t at, const BytePairModel::Piece& piece,
                    int32_t& character);
  void append_added(const FoundToken& found, const SourceSpan& source);
  Trimmed trimmed_of_added(const FoundToken& found);
  void append(int32_t id, SourceSpan source, const Trimmed& trimmed, bool starts_word);
  void trim(const Trimmed& trimmed, SourceSpan& source);
  int32_t character_length(int32_t byte) const;  // bytes of the source's character that begins there

  const BytePairModel& model_;
  const ByteLevelOptions& options_;
  const AddedTokens& added_;
  const std::string_view source_;
  Encoding& out_;
  EncodingWriter writer_;
  const size_t first_token_, max_tokens_;
  int64_t replaced_ = 0, steps_ = 0;

  NfcNormalizer nfc_;
  BytePairModel::Workspace workspace_;
  std::vector<SourcedChar> chars_;
  std::string normalized_, spaced_;
  std::vector<SourceSpan> normalized_spans_, spaced_spans_;
};

}  // namespace rf::text
