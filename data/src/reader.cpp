#include "rf/data/reader.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "csv_rows.h"
#include "document_splitter.h"
#include "input_files.h"
#include "json_field.h"
#include "parquet.h"
#include "piece_cutter.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "source_text.h"

namespace rf::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<DocumentRule, const char*>, 3> kDocumentRules{
    {{DocumentRule::kFile, "file"}, {DocumentRule::kBlankLine, "blank-line"}, {DocumentRule::kLine, "line"}}};
constexpr std::array<std::pair<Format, const char*>, 6> kFormats{{{Format::kAuto, "auto"},
                                                                  {Format::kText, "text"},
                                                                  {Format::kJsonLines, "jsonl"},
                                                                  {Format::kCsv, "csv"},
                                                                  {Format::kTsv, "tsv"},
                                                                  {Format::kParquet, "parquet"}}};

template <typename Table, typename Value>
const char* name_in(const Table& table, Value value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "";
}

// The number of a column from 1; 0 when the field is a name.
size_t column_number(const std::string& field) {
  size_t number = 0;
  const char* const end = field.data() + field.size();
  const auto [rest, error] = std::from_chars(field.data(), end, number);
  return error == std::errc() && rest == end ? number : 0;
}

// Documents of one file.
class FileReader {
 public:
  FileReader(const ReadOptions& options, const std::string& path, const std::function<void(const Piece&)>& piece,
             ReadCounts& counts)
      : options_(options),
        path_(path),
        name_(source_name(path)),
        cutter_(piece),
        splitter_(options.document_rule, cutter_),
        counts_(counts) {}

  void run() {
    const Format format = options_.format != Format::kAuto ? options_.format : format_of(path_).value_or(Format::kAuto);
    switch (format) {
      case Format::kAuto:
        guessed_ = path_ != kStandardInput;
        [[fallthrough]];
      case Format::kText:
        return read_text();
      case Format::kJsonLines:
        return read_json_lines();
      case Format::kCsv:
        return read_rows(',');
      case Format::kTsv:
        return read_rows('\t');
      case Format::kParquet:
        return read_columns();
    }
  }

 private:
  // Calls `take` with the file's text in pieces.
  template <typename Take>
  void read_bytes(Take take) {
    SourceText source(path_);
    const int64_t bytes_before = counts_.bytes;
    bool is_first = true;
    for (std::string_view text = source.next(); !text.empty(); text = source.next()) {
      if (guessed_ && std::exchange(is_first, false) && text.find('\0') != std::string_view::npos) {
        fail("input", "{} must be text, got zero bytes in it (--format says what it is)", name_);
      }
      counts_.bytes = bytes_before + source.bytes_read();
      take(text);
    }
    counts_.bytes = bytes_before + source.bytes_read();
  }

  void read_text() {
    read_bytes([&](std::string_view text) { splitter_.add(text); });
    splitter_.finish();
  }

  void read_json_lines() {
    JsonField field(options_.field);
    Lines lines([&](int64_t number, std::string_view line) {
      if (is_blank(line)) return;
      const JsonField::Result found = field.find(line);
      if (found.kind == JsonField::Result::Kind::kText) add_record(found.text);
      if (found.kind == JsonField::Result::Kind::kBad) refuse(number, found.problem);
    });
    read_bytes([&](std::string_view text) {
      lines.add(text);
      check_record_size(name_, lines.number(), lines.line_bytes());
    });
    lines.finish();
  }

  void read_rows(char delimiter) {
    // In a file without a header the field is the number of a column.
    const size_t number = column_number(options_.field);
    size_t column = number > 0 ? number - 1 : 0, columns = 0;
    CsvRows rows(delimiter, options_.quotes, [&](const CsvRow& row) {
      if (columns == 0) {
        columns = row.columns.size();
        if (number == 0) {
          column = find_column(row);
          return;
        }
        if (number > columns) fail("input", "{} must have a column {}, got {} columns", name_, number, columns);
      }
      if (row.columns.size() == columns) {
        add_record(row.columns[column]);
      } else {
        refuse(row.line, fmt::format("must have {} columns, as the first row has, got {}{}", columns,
                                     row.columns.size(), hint_of_quotes()));
      }
    });
    read_bytes([&](std::string_view text) {
      rows.add(text);
      check_record_size(name_, rows.line(), rows.row_bytes());
    });
    if (!rows.finish()) {
      refuse(rows.line(), fmt::format("must close its quotation marks, got none to the end{}", hint_of_quotes()));
    }
  }
  size_t find_column(const CsvRow& header) const {
    const auto is_field = [&](std::string_view column) { return column == options_.field; };
    const auto& columns = header.columns;
    const auto found = std::find_if(columns.begin(), columns.end(), is_field);
    if (found == columns.end() || std::find_if(found + 1, columns.end(), is_field) != columns.end()) {
      std::string names;
      for (const std::string_view name : columns) names += (names.empty() ? "" : ", ") + std::string(name);
      fail("input", "{} must have one column {}, got {} (--field says which; a number where there is no header)", name_,
           io::printable(options_.field), io::printable(names));
    }
    return static_cast<size_t>(found - columns.begin());
  }
  const char* hint_of_quotes() const {
    return options_.quotes == Quotes::kRead ? " (are its quotation marks text? --no-quotes)" : "";
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
    if (options_.bad_records == BadRecords::kRefuse) fail("input", "{} line {} {}", name_, line, problem);
    ++counts_.skipped_records;
  }

  const ReadOptions& options_;
  const std::string& path_;
  std::string name_;
  PieceCutter cutter_;
  DocumentSplitter splitter_;
  ReadCounts& counts_;
  bool guessed_ = false;  // neither the name nor --format says that the file is text
};

}  // namespace

DocumentRule document_rule(const std::string& name) {
  for (const auto& [rule, known] : kDocumentRules) {
    if (name == known) return rule;
  }
  fail("input", "the document rule must be file, blank-line or line, got {}", name);
}
const char* document_rule_name(DocumentRule rule) {
  return name_in(kDocumentRules, rule);
}

Format format(const std::string& name) {
  for (const auto& [format, known] : kFormats) {
    if (name == known) return format;
  }
  fail("input", "the format must be auto, text, jsonl, csv, tsv or parquet, got {}", name);
}
const char* format_name(Format format) {
  return name_in(kFormats, format);
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

void DocumentReader::read(const std::function<void(const Piece&)>& piece) {
  counts_ = {};
  for (const std::string& path : files_) {
    FileReader(options_, path, piece, counts_).run();
    ++counts_.files;
  }
}

}  // namespace rf::data
