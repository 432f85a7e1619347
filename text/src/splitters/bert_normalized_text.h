// The complete result of BertNormalizer, for tokenizers that search it for added tokens; all others use BertSplitter,
// which is faster because it does not store the normalised text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "splitters/bert_normalizer.h"
#include "splitters/bert_splitter.h"
#include "splitters/splitter.h"

namespace rf::text {

// Holds buffers: use one object per thread.
class BertNormalizedText {
 public:
  explicit BertNormalizedText(const BertSplitterOptions& options);
  // Normalises a text whose front is at (byte, character) of the source. Returns the number of ill-formed sequences.
  int64_t normalize(std::string_view text, int32_t byte, int32_t character);

  const std::string& text() const { return text_; }
  SourceSpan source(size_t begin, size_t end) const;  // of bytes [begin, end) of text(); begin < end
  // The words of bytes [begin, end), split like BertPreTokenizer.
  void split(size_t begin, size_t end, WordSink& sink) const;

 private:
  int64_t normalize_chars(std::string_view text, SourcePlace place);

  const bool space_cjk_;
  BertNormalizer normalizer_;
  std::vector<NormalizedChar> chars_;
  std::string text_;
  std::vector<SourceSpan> spans_;  // of each byte
};

}  // namespace rf::text
