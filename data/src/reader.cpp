#include "rf/data/reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

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

// kAuto if neither the name nor --format says what the file is: it is read as text.
Format format_in(const ReadOptions& options, const std::string& path) {
  return options.format != Format::kAuto ? options.format : format_of(path).value_or(Format::kAuto);
}

bool is_text(Format format) { return format == Format::kAuto || format == Format::kText; }

[[noreturn]] void fail_not_text(const std::string& name) {
  fail("input", "{} must be text, got zero bytes in it (--format says what it is)", name);
}

struct RecordText {
  int64_t line;                          // line on which the record begins, from 1; in Parquet, its row
  std::optional<std::string_view> text;  // nullopt for null and for a bad record
  std::string_view id{};                 // SourceText::id
  std::string_view problem{};            // why the record is bad; empty if it is valid
  bool is_list = false;                  // SourceText::is_list
};

using TakeRecord = std::function<void(const RecordText&)>;

// The number of a column from 1; 0 when the field is a name.
size_t column_number(const std::string& field) {
  size_t number = 0;
  const char* const end = field.data() + field.size();
  const auto [rest, error] = std::from_chars(field.data(), end, number);
  return error == std::errc() && rest == end ? number : 0;
}

// The number of the only column of that name, from 0; nullopt if it is missing or not the only one.
std::optional<size_t> find_column(const CsvRow& header, const std::string& field) {
  const auto& columns = header.columns;
  if (std::ranges::count(columns, field) != 1) return std::nullopt;
  return static_cast<size_t>(std::ranges::find(columns, field) - columns.begin());
}

void read_json_lines(const InputFile& file, const ReadOptions& options, const TakeRecord& take) {
  using Kind = io::JsonField::Result::Kind;
  io::JsonField text(options.field, options.ids != Ids::kNotRead ? options.id_field : "");
  file.read_lines([&](int64_t number, std::string_view line) {
    const io::JsonField::Result found = text.find(line);
    RecordText record{.line = number, .text = std::nullopt, .id = found.value, .problem = found.problem};
    record.is_list = options.lists == Lists::kRead && found.kind == Kind::kBad && found.text.starts_with('[');
    if (record.is_list) record.problem = {};
    if (found.kind == Kind::kText || record.is_list) record.text = found.text;
    take(record);
  });
}

void read_table(const InputFile& file, char delimiter, const ReadOptions& options, const TakeRecord& take) {
  size_t text = 0;  // the columns of the text and of the id
  std::optional<size_t> id;
  std::string id_text;
  const auto numbered = [&](const CsvRow& first, size_t number) {
    if (number > first.columns.size()) {
      fail("input", "{} must have a column {}, got {} columns", file.name(), number, first.columns.size());
    }
    return number - 1;
  };
  const auto find_columns = [&](const CsvRow& first) {
    // In a file without a header the field is the number of a column.
    if (const size_t number = column_number(options.field); number > 0) {
      text = numbered(first, number);
      if (options.ids != Ids::kNamed) return InputFile::FirstRow::kValues;
      const size_t id_number = column_number(options.id_field);
      if (id_number == 0) {
        fail("input", "the field of ids must be the number of a column, as --field is, got {}",
             io::printable(options.id_field));
      }
      id = numbered(first, id_number);
      return InputFile::FirstRow::kValues;
    }
    const auto find = [&](const std::string& field, const char* hint) {
      const std::optional<size_t> found = find_column(first, field);
      if (found || hint == nullptr) return found;
      fail("input", "{} must have one column {}, got {} ({})", file.name(), io::printable(field),
           io::printable(fmt::format("{}", fmt::join(first.columns, ", "))), hint);
    };
    text = *find(options.field, "--field says which; a number where there is no header");
    if (options.ids != Ids::kNotRead) {
      id = find(options.id_field, options.ids == Ids::kNamed ? "--id-field says which" : nullptr);
    }
    return InputFile::FirstRow::kNames;
  };
  const auto take_row = [&](const CsvRow& row) {
    id_text = id ? io::quoted_json(row.columns[*id]) : "";
    take({.line = row.line, .text = row.columns[text], .id = id_text});
  };
  file.read_rows(delimiter, find_columns, take_row, [&](int64_t line, const std::string& problem) {
    take({.line = line, .text = std::nullopt, .problem = problem});
  });
}

// Calls `take` for each record of the file at `path` with the text of options.field and the id; arguments are valid
// only during the call. Throws Error for a table without a required column, with BadRecords::kRefuse for a bad record,
// and as InputFile and read_parquet() do.
void read_record_texts(const std::string& path, const InputFile& file, Format format, const ReadOptions& options,
                       const TakeRecord& take) {
  const auto checked = [&](const RecordText& record) {
    if (!record.problem.empty() && options.bad_records == BadRecords::kRefuse) {
      fail("input", "{} line {} {}", file.name(), record.line, record.problem);
    }
    take(record);
  };
  if (format == Format::kJsonLines) return read_json_lines(file, options, checked);
  if (format != Format::kParquet) return read_table(file, delimiter_of(format), options, checked);
  if (path == kStandardInput) fail("input", "Parquet must come as a file, got standard input");
  int64_t row = 0;
  read_parquet(path, options, [&](std::optional<std::string_view> text, std::string_view id) {
    take({.line = ++row, .text = text, .id = id});
  });
  file.count_bytes(total_bytes({path}));
}

void read_documents(const ReadOptions& options, const std::string& path,
                    const std::function<void(const DocumentPart&)>& piece, ReadCounts& counts) {
  const InputFile file(path, options.quotes, counts.bytes, std::string_view::npos);
  const Format format = format_in(options, path);
  DocumentCutter cutter(piece);
  DocumentSplitter splitter(options.document_rule, cutter);
  if (is_text(format)) {
    bool is_tested = format == Format::kAuto && path != kStandardInput;
    file.read_pieces([&](std::string_view text) {
      if (std::exchange(is_tested, false) && text.find('\0') != std::string_view::npos) fail_not_text(file.name());
      splitter.add(text);
    });
    return splitter.finish();
  }
  read_record_texts(path, file, format, options, [&](const RecordText& record) {
    if (!record.problem.empty()) ++counts.skipped_records;
    if (!record.text) return;
    if (options.document_rule == DocumentRule::kFile) return cutter.add_document(*record.text);
    splitter.add(*record.text);
    splitter.finish();
  });
}

void read_texts(const ReadOptions& options, const std::string& path, const std::function<void(const SourceText&)>& take,
                int64_t& bytes_read) {
  constexpr size_t kPieceBytes = 4096;  // small: the caller asks for bytes_read() after each text
  const InputFile file(path, options.quotes, bytes_read, kPieceBytes);
  const Format format = format_in(options, path);
  if (!is_text(format)) {
    return read_record_texts(path, file, format, options, [&](const RecordText& record) {
      take({record.text.value_or(std::string_view()), file.name(), record.line, record.problem, record.id,
            record.is_list});
    });
  }
  const bool is_tested = format == Format::kAuto && path != kStandardInput;
  file.read_all_lines([&](int64_t number, std::string_view line) {
    if (is_tested && line.find('\0') != std::string_view::npos) fail_not_text(file.name());
    if (line.ends_with('\r')) line.remove_suffix(1);
    take({line, file.name(), number});
  });
}

}  // namespace

DocumentRule document_rule(const std::string& name) {
  for (const auto& [rule, known] : kDocumentRules) {
    if (name == known) return rule;
  }
  fail("input", "the document rule must be file, blank-line or line, got {}", io::printable(name));
}
const char* document_rule_name(DocumentRule rule) {
  return std::ranges::find(kDocumentRules, rule, &std::pair<DocumentRule, const char*>::first)->second;
}

InputReader::InputReader(ReadOptions options) : options_(std::move(options)) {
  FileList list = list_files(options_.inputs, options_.format, options_.outputs, options_.replaced);
  files_ = std::move(list.files);
  left_out_ = std::move(list.left_out);
  if (options_.field.empty() || options_.id_field.empty()) fail("input", "the field must have a name, got none");
  const auto is_read_as_text = [&](const std::string& path) { return is_text(format_in(options_, path)); };
  const bool is_checked = options_.field_of_text == FieldOfText::kRefused && options_.field != ReadOptions().field;
  if (is_checked && std::ranges::all_of(files_, is_read_as_text)) {
    fail("input", "--field must name a field of records, got {} for text (--format says what the input is)",
         io::printable(options_.field));
  }
}

int64_t InputReader::total_bytes() const { return data::total_bytes(files_); }

void DocumentReader::keep_files(size_t begin, size_t end) {
  files_ = {files_.begin() + static_cast<ptrdiff_t>(begin), files_.begin() + static_cast<ptrdiff_t>(end)};
}

void DocumentReader::read(const std::function<void(const DocumentPart&)>& piece) {
  counts_ = {};
  for (const std::string& path : files_) {
    read_documents(options_, path, piece, counts_);
    ++counts_.files;
  }
}

void TextReader::read(const std::function<void(const SourceText&)>& take) {
  bytes_read_ = 0;
  for (const std::string& path : files_) read_texts(options_, path, take, bytes_read_);
}

}  // namespace rf::data
