#include "rf/data/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "byte_source.h"
#include "document_cutter.h"
#include "document_splitter.h"
#include "input_file.h"
#include "input_files.h"
#include "parquet.h"
#include "rf/io/error.h"
#include "rf/io/json_field.h"
#include "rf/io/printable.h"

namespace rf::data {
namespace {

constexpr std::pair<DocumentRule, const char*> kDocumentRules[] = {
    {DocumentRule::kFile, "file"}, {DocumentRule::kBlankLine, "blank-line"}, {DocumentRule::kLine, "line"}};

// The number of a column from 1; 0 when the field is a name.
size_t column_number(const std::string& field) {
  size_t number = 0;
  const char* const end = field.data() + field.size();
  const auto [rest, error] = std::from_chars(field.data(), end, number);
  return error == std::errc() && rest == end ? number : 0;
}

// The documents of one file.
class FileDocuments {
 public:
  FileDocuments(const ReadOptions& options, const std::string& path,
                const std::function<void(const DocumentPart&)>& piece, ReadCounts& counts)
      : options_(options),
        path_(path),
        file_(path, options.quotes, counts.bytes, std::string_view::npos),
        cutter_(piece),
        splitter_(options.document_rule, cutter_),
        counts_(counts) {}

  void run() {
    const Format format = options_.format != Format::kAuto ? options_.format : format_of(path_).value_or(Format::kAuto);
    switch (format) {
      case Format::kAuto:
      case Format::kText:
        return read_text(format == Format::kAuto && path_ != kStandardInput);
      case Format::kJsonLines:
        return read_json_lines();
      case Format::kCsv:
      case Format::kTsv:
        return read_rows(delimiter_of(format));
      case Format::kParquet:
        return read_columns();
    }
  }

 private:
  // `guessed`: neither the name nor --format says that the file is text.
  void read_text(bool guessed) {
    bool is_first = true;
    file_.read_pieces([&](std::string_view text) {
      if (guessed && std::exchange(is_first, false) && text.find('\0') != std::string_view::npos) {
        fail("input", "{} must be text, got zero bytes in it (--format says what it is)", file_.name());
      }
      splitter_.add(text);
    });
    splitter_.finish();
  }

  void read_json_lines() {
    io::JsonField field(options_.field);
    file_.read_lines([&](int64_t number, std::string_view line) {
      const io::JsonField::Result found = field.find(line);
      if (found.kind == io::JsonField::Result::Kind::kText) add_record(found.text);
      if (found.kind == io::JsonField::Result::Kind::kBad) refuse(number, found.problem);
    });
  }

  void read_rows(char delimiter) {
    // In a file without a header the field is the number of a column.
    const size_t number = column_number(options_.field);
    size_t column = number > 0 ? number - 1 : 0;
    const auto first = [&](const CsvRow& row) {
      if (number == 0) {
        column = find_column(row);
        return InputFile::FirstRow::kNames;
      }
      if (number > row.columns.size()) {
        fail("input", "{} must have a column {}, got {} columns", file_.name(), number, row.columns.size());
      }
      return InputFile::FirstRow::kValues;
    };
    file_.read_rows(
        delimiter, first, [&](const CsvRow& row) { add_record(row.columns[column]); },
        [&](int64_t line, const std::string& problem) { refuse(line, problem); });
  }
  size_t find_column(const CsvRow& header) const {
    const auto& columns = header.columns;
    const auto found = std::ranges::find(columns, options_.field);
    if (std::ranges::count(columns, options_.field) != 1) {
      fail("input", "{} must have one column {}, got {} (--field says which; a number where there is no header)",
           file_.name(), io::printable(options_.field), io::printable(fmt::format("{}", fmt::join(columns, ", "))));
    }
    return static_cast<size_t>(found - columns.begin());
  }

  void read_columns() {
    if (path_ == kStandardInput) fail("input", "Parquet must come as a file, got standard input");
    read_parquet(path_, options_.field, [&](std::optional<std::string_view> text) {
      if (text) add_record(*text);
    });
    counts_.bytes += data::total_bytes({path_});
  }

  void add_record(std::string_view text) {
    if (options_.document_rule == DocumentRule::kFile) {
      cutter_.add_document(text);
    } else {
      splitter_.add(text);
      splitter_.finish();
    }
  }
  void refuse(int64_t line, const std::string& problem) {
    if (options_.bad_records == BadRecords::kRefuse) fail("input", "{} line {} {}", file_.name(), line, problem);
    ++counts_.skipped_records;
  }

  const ReadOptions& options_;
  const std::string& path_;
  const InputFile file_;
  DocumentCutter cutter_;
  DocumentSplitter splitter_;
  ReadCounts& counts_;
};

}  // namespace

DocumentRule document_rule(const std::string& name) {
  for (const auto& [rule, known] : kDocumentRules) {
    if (name == known) return rule;
  }
  fail("input", "the document rule must be file, blank-line or line, got {}", name);
}
const char* document_rule_name(DocumentRule rule) {
  return std::ranges::find(kDocumentRules, rule, &std::pair<DocumentRule, const char*>::first)->second;
}

DocumentReader::DocumentReader(ReadOptions options) : options_(std::move(options)) {
  FileList list = list_files(options_.inputs, options_.format, options_.outputs);
  files_ = std::move(list.files);
  left_out_ = std::move(list.left_out);
  if (options_.field.empty()) fail("input", "the field must have a name, got none");
}

int64_t DocumentReader::total_bytes() const {
  return data::total_bytes(files_);
}

void DocumentReader::read(const std::function<void(const DocumentPart&)>& piece) {
  counts_ = {};
  for (const std::string& path : files_) {
    FileDocuments(options_, path, piece, counts_).run();
    ++counts_.files;
  }
}

}  // namespace rf::data
