// Documents and texts from inputs: text, JSON lines, CSV, TSV and Parquet; plain or compressed with gzip or zstd;
// files, directories, globs, pipes and standard input. docs/formats.md describes each for users.
//
// Memory does not grow with a file: text is read in pieces, and so is a long document of a text file. A record (a line
// of JSON, a row) is held in memory as a whole and may have 512 MiB. Bytes that are not UTF-8 are passed on unchanged;
// the tokenizer replaces and counts them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/data/format.h"

namespace rf::data {

// The rule that divides text into documents. In formats with records, the text of each record counts as a file.
enum class DocumentRule {
  kFile,       // a file is one document
  kBlankLine,  // documents are separated by blank lines
  kLine,       // a line is one document
};
DocumentRule document_rule(const std::string& name);  // "file", "blank-line", "line"; throws Error otherwise
const char* document_rule_name(DocumentRule rule);    // the same names

enum class Quotes { kRead, kText };        // CSV and TSV: with kText quotation marks are text
enum class BadRecords { kRefuse, kSkip };  // kSkip counts them

// Which records have ids. kIfPresent: records with the field; tables and Parquet files may lack its column. kNamed: the
// same, but a file without the column is an Error.
enum class Ids { kNotRead, kIfPresent, kNamed };

enum class Lists { kRefused, kRead };
enum class FieldOfText { kRefused, kIgnored };  // a field other than "text", where all inputs are text

struct ReadOptions {
  // Files, directories (searched for names that have a format), quoted globs (*, ?, [...], ** for any directories), and
  // "-" for standard input. Read in this order, the files of a directory or a glob in the order of their names.
  std::vector<std::string> inputs{};
  Format format = Format::kAuto;
  // The field with a record's text. JSON: a key, keys with dots between them, or a JSON pointer ("/a/0/b"); Parquet: a
  // column, with dots into structs; CSV and TSV: a name in the header, or the number of a column from 1 in a file
  // without header.
  std::string field = "text";
  FieldOfText field_of_text = FieldOfText::kRefused;
  // Whether the field of a JSON line may be a list, which TextReader gives as JSON text.
  Lists lists = Lists::kRefused;
  // The field with a record's id, which TextReader reads: named as `field` is. The default is not the number of a
  // column, so a table without header is read without ids.
  Ids ids = Ids::kNotRead;
  std::string id_field = "id";
  DocumentRule document_rule = DocumentRule::kFile;
  Quotes quotes = Quotes::kRead;
  // A bad record is a line that is not a JSON object, lacks the field, or has neither text nor null there; or a row
  // with another number of columns than the first.
  BadRecords bad_records = BadRecords::kRefuse;
  // Files and directories that the command writes: they are left out of input directories and patterns, and
  // are refused as inputs.
  std::vector<std::string> outputs{};
  // The output that the user named, if the command replaces a file: refused also in a directory or a pattern.
  std::string replaced{};
};

// A part of a document. A document of more than about 128 KiB comes in several pieces, divided where this does not
// change the result of a tokenizer (src/document_splitter.h).
struct DocumentPart {
  std::string_view text;
  enum class End { kNo, kOfDocument } end;
};

struct ReadCounts {
  int64_t files = 0;            // finished
  int64_t bytes = 0;            // read, on disk
  int64_t skipped_records = 0;  // bad records
};

class InputReader {
 public:
  // Lists the files. Throws Error for a path that does not exist or cannot be read, a directory without a file to read,
  // a glob without a match, and names without a known format.
  explicit InputReader(ReadOptions options);

  const ReadOptions& options() const { return options_; }
  const std::vector<std::string>& files() const { return files_; }        // in reading order, each once
  const std::vector<std::string>& left_out() const { return left_out_; }  // because they are outputs
  int64_t total_bytes() const;                                            // of the regular files

 protected:
  ReadOptions options_;
  std::vector<std::string> files_, left_out_;
};

class DocumentReader : public InputReader {
 public:
  using InputReader::InputReader;
  // Only files [begin, end) are read from now on.
  void keep_files(size_t begin, size_t end);
  // Calls `piece` for every document that is not only white space, in order; without a byte order mark, and in text
  // files with "\n" for "\r\n". Throws Error, naming file and line, for bad records, damaged archives, and files that
  // fail to read.
  void read(const std::function<void(const DocumentPart&)>& piece);
  const ReadCounts& counts() const { return counts_; }  // so far

 private:
  ReadCounts counts_;
};

struct SourceText {
  std::string_view text;       // as in the file; it may hold bytes that are not UTF-8
  const std::string& source;   // the file, or "standard input"
  int64_t line;                // first line, from 1; in Parquet, its row
  std::string_view problem{};  // with BadRecords::kSkip: why the record is bad, without its place; its text is then
                               // empty
  // ReadOptions::ids: the record's id as JSON text in one line, or empty without an id. Ids are any value except null
  // in JSON lines, texts in tables, and texts, integers or floating-point numbers in Parquet.
  std::string_view id{};
  bool is_list = false;  // with Lists::kRead: `text` is the JSON text of a list
};

// Texts: each line of a text file and each record of the other formats, in order. An empty line and a record with null
// are empty texts, so that result i belongs to text i.
class TextReader : public InputReader {
 public:
  // The option document_rule is ignored. A bad record is an error, or with BadRecords::kSkip a text with a problem, so
  // that later texts keep their numbers.
  using InputReader::InputReader;
  int64_t bytes_read() const { return bytes_read_; }  // so far, on disk
  // Calls `take` for each text; its argument is valid only during the call. Lines of white space between JSON objects
  // and empty rows of a table are not records. Throws Error, naming file and line, for bad records, damaged archives,
  // and files that fail to read.
  void read(const std::function<void(const SourceText&)>& take);

 private:
  int64_t bytes_read_ = 0;
};

}  // namespace rf::data
