#include "record_texts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "byte_source.h"
#include "input_files.h"
#include "parquet.h"
#include "rf/io/error.h"
#include "rf/io/json_field.h"
#include "rf/io/printable.h"

namespace rf::data {
namespace {

// The number of a column from 1; 0 when the field is a name.
size_t column_number(const std::string& field) {
  size_t number = 0;
  const char* const end = field.data() + field.size();
  const auto [rest, error] = std::from_chars(field.data(), end, number);
  return error == std::errc() && rest == end ? number : 0;
}

// The number of the only column of that name, from 0; nullopt if there is none or several.
std::optional<size_t> find_column(const CsvRow& header, const std::string& field) {
  const auto& columns = header.columns;
  if (std::ranges::count(columns, field) != 1) return std::nullopt;
  return static_cast<size_t>(std::ranges::find(columns, field) - columns.begin());
}

[[noreturn]] void fail_no_column(const CsvRow& header, const std::string& field, const std::string& name,
                                 const char* hint) {
  fail("input", "{} must have one column {}, got {} ({})", name, io::printable(field),
       io::printable(fmt::format("{}", fmt::join(header.columns, ", "))), hint);
}

void read_json_lines(const InputFile& file, const ReadOptions& options,
                     const std::function<void(const RecordText&)>& take) {
  using Kind = io::JsonField::Result::Kind;
  io::JsonField text(options.field, options.ids != Ids::kNotRead ? options.id_field : "");
  file.read_lines([&](int64_t number, std::string_view line) {
    const io::JsonField::Result found = text.find(line);
    RecordText record{.line = number, .text = std::nullopt, .id = found.value, .problem = found.problem};
    if (found.kind == Kind::kText) record.text = found.text;
    take(record);
  });
}

// Which columns of a table hold text and ids.
class TableColumns {
 public:
  explicit TableColumns(const ReadOptions& options) : options_(options) {}

  InputFile::FirstRow find(const CsvRow& first, const std::string& name) {
    // In a file without a header the field is the number of a column.
    const size_t number = column_number(options_.field);
    if (number == 0) {
      const std::optional<size_t> text = find_column(first, options_.field);
      if (!text) fail_no_column(first, options_.field, name, "--field says which; a number where there is no header");
      text_ = *text;
      if (options_.ids != Ids::kNotRead) id_ = find_column(first, options_.id_field);
      if (options_.ids == Ids::kNamed && !id_) {
        fail_no_column(first, options_.id_field, name, "--id-field says which");
      }
      return InputFile::FirstRow::kNames;
    }
    text_ = numbered(first, number, name);
    if (options_.ids == Ids::kNamed) {
      const size_t id_number = column_number(options_.id_field);
      if (id_number == 0) {
        fail("input", "the field of ids must be the number of a column, as --field is, got {}",
             io::printable(options_.id_field));
      }
      id_ = numbered(first, id_number, name);
    }
    return InputFile::FirstRow::kValues;
  }

  RecordText record(const CsvRow& row) {
    id_text_ = id_ ? io::quoted_json(row.columns[*id_]) : "";
    return {.line = row.line, .text = row.columns[text_], .id = id_text_};
  }

 private:
  static size_t numbered(const CsvRow& first, size_t number, const std::string& name) {
    if (number > first.columns.size()) {
      fail("input", "{} must have a column {}, got {} columns", name, number, first.columns.size());
    }
    return number - 1;
  }

  const ReadOptions& options_;
  size_t text_ = 0;
  std::optional<size_t> id_;
  std::string id_text_;
};

void read_table(const InputFile& file, char delimiter, const ReadOptions& options,
                const std::function<void(const RecordText&)>& take) {
  TableColumns columns(options);
  file.read_rows(
      delimiter, [&](const CsvRow& row) { return columns.find(row, file.name()); },
      [&](const CsvRow& row) { take(columns.record(row)); },
      [&](int64_t line, const std::string& problem) {
        take({.line = line, .text = std::nullopt, .problem = problem});
      });
}

}  // namespace

void read_record_texts(const std::string& path, const InputFile& file, Format format, const ReadOptions& options,
                       const std::function<void(const RecordText&)>& take) {
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

}  // namespace rf::data
