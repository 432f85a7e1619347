// Divides a text, which arrives in pieces of any size, into documents by a DocumentRule. "\r\n" is read as "\n", and a
// "\r" at the end is dropped; any other "\r" is white space. With kLine, documents do not include the line end.
#pragma once

#include <string>
#include <string_view>

#include "document_cutter.h"
#include "rf/data/reader.h"

namespace rf::data {

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
