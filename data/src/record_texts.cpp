#include "record_texts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "byte_source.h"
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

size_t find_column(const CsvRow& header, const std::string& field, const std::string& name) {
  const auto& columns = header.columns;
  const auto found = std::ranges::find(columns, field);
  if (std::ranges::count(columns, field) != 1) {
    fail("input", "{} must have one column {}, got {} (--field says which; a number where there is no header)", name,
         io::printable(field), io::printable(fmt::format("{}", fmt::join(columns, ", "))));
  }
  return static_cast<size_t>(found - columns.begin());
}

void read_json_lines(const InputFile& file, const std::string& field, const TakeRecord& take,
                     const InputFile::Refuse& refuse) {
  using Kind = io::JsonField::Result::Kind;
  io::JsonField json(field);
  file.read_lines([&](int64_t number, std::string_view line) {
    const io::JsonField::Result found = json.find(line);
    if (found.kind == Kind::kText) take(number, found.text);
    if (found.kind == Kind::kNull) take(number, std::nullopt);
    if (found.kind == Kind::kBad) refuse(number, found.problem);
  });
}

void read_table(const InputFile& file, char delimiter, const std::string& field, const TakeRecord& take,
                const InputFile::Refuse& refuse) {
  // In a file without a header the field is the number of a column.
  const size_t number = column_number(field);
  size_t column = number > 0 ? number - 1 : 0;
  const auto first = [&](const CsvRow& row) {
    if (number == 0) {
      column = find_column(row, field, file.name());
      return InputFile::FirstRow::kNames;
    }
    if (number > row.columns.size()) {
      fail("input", "{} must have a column {}, got {} columns", file.name(), number, row.columns.size());
    }
    return InputFile::FirstRow::kValues;
  };
  file.read_rows(
      delimiter, first, [&](const CsvRow& row) { take(row.line, row.columns[column]); }, refuse);
}

}  // namespace

void read_record_texts(const std::string& path, const InputFile& file, Format format, const std::string& field,
                       const TakeRecord& take, const InputFile::Refuse& refuse) {
  if (format == Format::kJsonLines) return read_json_lines(file, field, take, refuse);
  if (format != Format::kParquet) return read_table(file, delimiter_of(format), field, take, refuse);
  if (path == kStandardInput) fail("input", "Parquet must come as a file, got standard input");
  int64_t row = 0;
  read_parquet(path, field, [&](std::optional<std::string_view> text) { take(++row, text); });
}

void fail_not_text(const std::string& name) {
  fail("input", "{} must be text, got zero bytes in it (--format says what it is)", name);
}

}  // namespace rf::data
