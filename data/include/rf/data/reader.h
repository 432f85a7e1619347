// Documents out of text files. A path is a file or a directory (searched recursively for *.txt, in name order).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rf::data {

enum class DocumentRule {
  kFile,       // a file is one document
  kBlankLine,  // documents are separated by blank lines
  kLine,       // a line is one document
};
DocumentRule document_rule(const std::string& name);  // "file", "blank-line", "line"; throws Error otherwise
const char* document_rule_name(DocumentRule rule);    // the same names

// Files to read, sorted by name and without duplicates. Throws Error for a path that does not exist, cannot be read, or
// a directory without *.txt files.
std::vector<std::string> list_text_files(const std::vector<std::string>& paths);

// Calls `document` for each document that is not only white space. "\r\n" is read as "\n". A file is read in pieces, so
// its size does not matter; a document longer than max_document_bytes (default 64 MiB) is cut at a line or space, and
// the pieces are documents of their own. Throws Error for a path that cannot be read.
void read_documents(const std::string& path, DocumentRule rule, const std::function<void(std::string_view)>& document,
                    int64_t max_document_bytes = int64_t{1} << 26);

}  // namespace rf::data
