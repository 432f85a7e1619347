#include "rf/data/records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "byte_source.h"
#include "csv_rows.h"
#include "input_files.h"
#include "piece_cutter.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "source_text.h"

namespace rf::data {

namespace {

constexpr size_t kShownBytes = 120;

std::string shown(const nlohmann::json& value) {
  return io::escaped(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), kShownBytes);
}

// Records of one file.
class FileRecords {
 public:
  FileRecords(const RecordOptions& options, const std::string& path, const std::function<void(Record&)>& record,
              int64_t& bytes_read)
      : options_(options), path_(path), record_(record), bytes_read_(bytes_read) {
    source_ = std::make_shared<const std::string>(source_name(path));
  }

  void read() {
    switch (format()) {
      case Format::kJsonLines:
        return read_json_lines();
      case Format::kCsv:
        return read_table(',');
      case Format::kTsv:
        return read_table('\t');
      case Format::kText:
        if (!options_.text_field.empty()) return read_text();
        [[fallthrough]];
      default:
        fail("input", "{} must be jsonl, csv or tsv, got {} (--format says what it is)", *source_,
             data::format_name(format()));
    }
  }

 private:
  Format format() const {
    if (options_.format != Format::kAuto) return options_.format;
    if (path_ == kStandardInput) return Format::kJsonLines;
    return format_of(path_).value_or(Format::kText);
  }

  // Calls `take` with each line that is not white space alone, and its number.
  void read_lines(const std::function<void(int64_t, std::string_view)>& take) {
    Lines lines([&](int64_t number, std::string_view line) {
      if (!is_blank(line)) take(number, line);
    });
    read_bytes([&](std::string_view text) {
      lines.add(text);
      check_record_size(*source_, lines.number(), lines.line_bytes());
    });
    lines.finish();
  }

  // In small pieces, so that bytes_read() matches the records passed on so far.
  void read_bytes(const std::function<void(std::string_view)>& take) {
    constexpr size_t kPiece = 4096;
    SourceText source(path_);
    const int64_t begin = bytes_read_;
    int64_t before = 0;
    for (std::string_view text = source.next(); !text.empty(); text = source.next()) {
      const int64_t packed = source.bytes_read() - before;
      for (size_t at = 0; at < text.size(); at += kPiece) {
        const size_t end = std::min(at + kPiece, text.size());
        bytes_read_ = begin + before + packed * static_cast<int64_t>(end) / static_cast<int64_t>(text.size());
        take(text.substr(at, end - at));
      }
      before += packed;
    }
    bytes_read_ = begin + source.bytes_read();
  }

  void read_text() {
    read_lines([&](int64_t number, std::string_view line) {
      if (line.ends_with('\r')) line.remove_suffix(1);
      nlohmann::json fields = {{options_.text_field, line}};
      check_utf8(number, fields);
      pass_on(number, std::move(fields));
    });
  }

  void read_json_lines() {
    read_lines([&](int64_t number, std::string_view line) {
      nlohmann::json fields = io::parse_json(line, fmt::format("{} line {}", *source_, number));
      if (!fields.is_object()) {
        fail("input", "{} line {} must be a JSON object, got {}", *source_, number, shown(fields));
      }
      pass_on(number, std::move(fields));
    });
  }

  void read_table(char delimiter) {
    std::vector<std::string> names;
    CsvRows rows(delimiter, options_.quotes, [&](const CsvRow& row) {
      if (names.empty()) return read_header(row, names);
      if (row.columns.size() != names.size()) {
        fail("input", "{} line {} must have {} columns, as the first row has, got {}{}", *source_, row.line,
             names.size(), row.columns.size(), hint_of_quotes());
      }
      nlohmann::json fields = nlohmann::json::object();
      for (size_t i = 0; i < names.size(); ++i) fields[names[i]] = row.columns[i];
      check_utf8(row.line, fields);
      pass_on(row.line, std::move(fields));
    });
    read_bytes([&](std::string_view text) {
      rows.add(text);
      check_record_size(*source_, rows.line(), rows.row_bytes());
    });
    if (!rows.finish()) {
      fail("input", "{} line {} must close its quotation marks, got none to the end{}", *source_, rows.line(),
           hint_of_quotes());
    }
  }

  void check_utf8(int64_t line, const nlohmann::json& fields) const {
    try {
      static_cast<void>(fields.dump());
    } catch (const nlohmann::json::type_error&) {
      fail("input", "{} line {} must be UTF-8, got {}", *source_, line, shown(fields));
    }
  }

  void read_header(const CsvRow& row, std::vector<std::string>& names) const {
    std::set<std::string_view> seen;
    for (const std::string_view name : row.columns) {
      if (!seen.insert(name).second) {
        fail("input", "{} line {} must name each column once, got {} twice", *source_, row.line, io::printable(name));
      }
      names.emplace_back(name);
    }
  }

  const char* hint_of_quotes() const {
    return options_.quotes == Quotes::kRead ? " (are its quotation marks text? --no-quotes)" : "";
  }

  void pass_on(int64_t line, nlohmann::json fields) const {
    Record record{source_, line, std::move(fields)};
    record_(record);
  }

  const RecordOptions& options_;
  const std::string& path_;
  const std::function<void(Record&)>& record_;
  int64_t& bytes_read_;  // of all files
  std::shared_ptr<const std::string> source_;
};

}  // namespace

std::string Record::place() const {
  return fmt::format("{} line {}", *source, line);
}

const nlohmann::json* Record::find(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& Record::at(const std::string& name) const {
  if (const nlohmann::json* value = find(name)) return *value;
  std::vector<std::string> names;
  for (const auto& item : fields.items()) {
    if (!item.value().is_null()) names.push_back(io::escaped(item.key(), kShownBytes));
  }
  fail("input", "{} must have a field {}, got {} (--columns says which field is what)", place(), io::printable(name),
       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

std::string Record::text(const std::string& name) const {
  const nlohmann::json& value = at(name);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  fail("input", "{} must have a text as {}, got {}", place(), io::printable(name), shown(value));
}

double Record::number(const std::string& name) const {
  const nlohmann::json& value = at(name);
  double number = NAN;
  if (value.is_number()) number = value.get<double>();
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || rest != text.data() + text.size()) number = NAN;
  }
  if (!std::isfinite(number)) {
    fail("input", "{} must have a finite number as {}, got {}", place(), io::printable(name), shown(value));
  }
  return number;
}

RecordReader::RecordReader(RecordOptions options)
    : options_(std::move(options)), files_(list_files(options_.inputs, options_.format).files) {}

void RecordReader::read(const std::function<void(Record&)>& record) {
  for (const std::string& path : files_) FileRecords(options_, path, record, bytes_read_).read();
}

int64_t RecordReader::total_bytes() const {
  return data::total_bytes(files_);
}

}  // namespace rf::data
