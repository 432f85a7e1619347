#include "rf/data/records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "byte_source.h"
#include "input_file.h"
#include "input_files.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "rf/io/written_files.h"

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
      : options_(options), path_(path), record_(record), file_(path, options.quotes, bytes_read, kPieceBytes) {
    source_ = std::make_shared<const std::string>(file_.name());
  }

  void read() {
    switch (format()) {
      case Format::kJsonLines: return read_json_lines();
      case Format::kCsv:
      case Format::kTsv: return read_table(delimiter_of(format()));
      case Format::kText:
        if (!options_.text_field.empty()) return read_text();
        [[fallthrough]];
      default:
        fail("input", "{} must be jsonl, csv or tsv, got {} (--format says what it is)", *source_,
             data::format_name(format()));
    }
  }

 private:
  static constexpr size_t kPieceBytes = 4096;  // small: the caller asks for bytes_read() after each record

  Format format() const {
    if (options_.format != Format::kAuto) return options_.format;
    if (path_ == kStandardInput) return Format::kJsonLines;
    return format_of(path_).value_or(Format::kText);
  }

  void read_text() {
    file_.read_all_lines([&](int64_t number, std::string_view line) {
      if (line.ends_with('\r')) line.remove_suffix(1);
      nlohmann::json fields = {{options_.text_field, line}};
      check_utf8(number, fields);
      pass_on(number, std::move(fields));
    });
  }

  void read_json_lines() {
    file_.read_lines([&](int64_t number, std::string_view line) {
      nlohmann::json fields = io::parse_json(line, fmt::format("{} line {}", *source_, number));
      if (!fields.is_object()) {
        fail("input", "{} line {} must be a JSON object, got {}", *source_, number, shown(fields));
      }
      pass_on(number, std::move(fields));
    });
  }

  void read_table(char delimiter) {
    std::vector<std::string> names;
    const auto first = [&](const CsvRow& row) {
      read_header(row, names);
      return InputFile::FirstRow::kNames;
    };
    const auto take = [&](const CsvRow& row) {
      nlohmann::json fields = nlohmann::json::object();
      for (size_t i = 0; i < names.size(); ++i) fields[names[i]] = row.columns[i];
      check_utf8(row.line, fields);
      pass_on(row.line, std::move(fields));
    };
    file_.read_rows(delimiter, first, take, [&](int64_t line, const std::string& problem) {
      fail("input", "{} line {} {}", *source_, line, problem);
    });
  }

  // `fields` has strings alone.
  void check_utf8(int64_t line, const nlohmann::json& fields) const {
    for (const auto& [name, value] : fields.items()) {
      for (const std::string& text : {name, value.get_ref<const std::string&>()}) {
        if (!is_utf8(text)) fail("input", "{} line {} must be UTF-8, got {}", *source_, line, io::printable(text));
      }
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

  void pass_on(int64_t line, nlohmann::json fields) const {
    Record record{source_, line, std::move(fields)};
    record_(record);
  }

  const RecordOptions& options_;
  const std::string& path_;
  const std::function<void(Record&)>& record_;
  const InputFile file_;
  std::shared_ptr<const std::string> source_;
};

}  // namespace

std::optional<std::string> text_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return std::nullopt;
}

std::string Record::place() const { return fmt::format("{} line {}", *source, line); }

const nlohmann::json* Record::find(const std::string& name) const {
  const auto found = fields.find(name);
  return found == fields.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& Record::at(const std::string& name) const {
  const auto found = fields.find(name);
  if (found != fields.end() && !found->is_null()) return *found;
  if (found != fields.end()) fail("input", "{} must have a value as {}, got null", place(), io::printable(name));
  std::vector<std::string> names;
  for (const auto& item : fields.items()) {
    if (!item.value().is_null()) names.push_back(io::escaped(item.key(), kShownBytes));
  }
  fail("input", "{} must have a field {}, got {} (--columns says which field is what)", place(), io::printable(name),
       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

std::string Record::text(const std::string& name) const {
  const nlohmann::json& value = at(name);
  if (const std::optional<std::string> text = text_of(value)) return *text;
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

RecordReader::RecordReader(RecordOptions options) : options_(std::move(options)) {
  FileList list = list_files(options_.inputs, options_.format);
  io::WrittenFiles().check_inputs(list.left_out);  // each record of a directory counts
  files_ = std::move(list.files);
}

void RecordReader::read(const std::function<void(Record&)>& record) {
  for (const std::string& path : files_) FileRecords(options_, path, record, bytes_read_).read();
}

int64_t RecordReader::total_bytes() const { return data::total_bytes(files_); }

}  // namespace rf::data
