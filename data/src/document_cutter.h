// Collects the text of a document and passes it on in pieces that may be tokenized separately.
//
// A long document is cut before a single space, line end, "，" or "。" with a letter on either side. BERT, jieba and
// the byte-level patterns of GPT-2 and its successors all begin a word there, so the tokens are those of the whole
// text, except for an added token that spans such a place. A text of 4 MiB without such a place is cut before white
// space, or else between two characters, where a word may be lost.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "rf/data/reader.h"

namespace rf::data {

inline constexpr size_t kLongDocumentBytes = size_t{1} << 17;  // shorter ones are not cut

size_t leading_blanks(std::string_view text);  // white space of ASCII
bool is_blank(std::string_view text);          // nothing else

class DocumentCutter {
 public:
  explicit DocumentCutter(const std::function<void(const DocumentPart&)>& piece) : piece_(piece) {}

  void add(std::string_view text);
  void end_document();  // a document of white space alone is left out
  void add_document(std::string_view text);

 private:
  void cut();

  const std::function<void(const DocumentPart&)>& piece_;
  std::string text_;
  size_t next_cut_ = kLongDocumentBytes;  // size of text_ at which the next place to cut is searched
  bool begun_ = false;                    // a piece of this document was passed on
};

}  // namespace rf::data
