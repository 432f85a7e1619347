// Divides text into documents, and passes long ones on in pieces that may be tokenized separately.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "rf/data/reader.h"

namespace rf::data {

inline constexpr size_t kLongDocumentBytes = size_t{1} << 17;  // shorter ones are not cut

size_t leading_blanks(std::string_view text);  // number of leading ASCII white space characters
bool is_blank(std::string_view text);          // only ASCII white space

// Collects the text of a document. A long document is cut before a single space, line end, "，" or "。" with a letter
// on either side. BERT, jieba and the byte-level patterns of GPT-2 and its successors all begin a word there. So the
// tokens equal the tokens of the whole text, except for an added token that spans such a place. A text of 4 MiB without
// such a place is cut before white space, or else between two characters, which may split a word.
class DocumentCutter {
 public:
  explicit DocumentCutter(const std::function<void(const DocumentPart&)>& piece) : piece_(piece) {}

  void add(std::string_view text);
  void end_document();  // a document of only white space is left out
  void add_document(std::string_view text);

 private:
  void cut();

  const std::function<void(const DocumentPart&)>& piece_;
  std::string text_;
  size_t next_cut_ = kLongDocumentBytes;  // size of text_ at which the next search begins
  bool begun_ = false;                    // a piece of this document was passed on
};

// Divides a text, which arrives in pieces of any size, into documents by a DocumentRule. "\r\n" is read as "\n", and a
// "\r" at the end is dropped; any other "\r" is white space. With kLine, documents do not include the line end.
class DocumentSplitter {
 public:
  DocumentSplitter(DocumentRule rule, DocumentCutter& cutter) : rule_(rule), cutter_(cutter) {}

  void add(std::string_view text);
  void finish();  // ends the document; another text may follow

 private:
  void add_lines(std::string_view text);
  void add_line(std::string_view line);
  void add_to_blank_line_document(std::string_view text);

  DocumentRule rule_;
  DocumentCutter& cutter_;
  bool return_waits_ = false;  // a "\r" that may belong to "\r\n"
  // kBlankLine: the last line end, and white space at the start of a line, which are added if the document continues;
  // at most kLongDocumentBytes, to bound memory.
  std::string waiting_;
  bool line_is_blank_ = true;
};

}  // namespace rf::data
