#include "rf/data/records.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

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

void read_records(const RecordOptions& options, const std::string& path, const std::function<void(Record&)>& take,
                  int64_t& bytes_read) {
  constexpr size_t kPieceBytes = 4096;  // small: the caller asks for bytes_read() after each record
  const InputFile file(path, options.quotes, bytes_read, kPieceBytes);
  const auto source = std::make_shared<const std::string>(file.name());
  const auto refuse = [&](int64_t line, const std::string& problem) {
    fail("input", "{} line {} {}", *source, line, problem);
  };
  const auto pass_on = [&](int64_t line, nlohmann::json fields) {
    Record record{source, line, std::move(fields)};
    take(record);
  };
  const auto pass_on_texts = [&](int64_t line, nlohmann::json fields) {
    for (const auto& [name, value] : fields.items()) {
      for (const std::string& text : {name, value.get_ref<const std::string&>()}) {
        if (!is_utf8(text)) refuse(line, "must be UTF-8, got " + io::printable(text));
      }
    }
    pass_on(line, std::move(fields));
  };
  Format format = options.format;
  if (format == Format::kAuto) {
    format = path == kStandardInput ? Format::kJsonLines : format_of(path).value_or(Format::kText);
  }
  if (format == Format::kJsonLines) {
    return file.read_lines([&](int64_t line, std::string_view text) {
      nlohmann::json fields = io::parse_json(text, fmt::format("{} line {}", *source, line));
      if (!fields.is_object()) refuse(line, "must be a JSON object, got " + io::shown(fields));
      pass_on(line, std::move(fields));
    });
  }
  if (format == Format::kText && !options.text_field.empty()) {
    return file.read_all_lines([&](int64_t line, std::string_view text) {
      if (text.ends_with('\r')) text.remove_suffix(1);
      nlohmann::json fields = {{options.text_field, text}};
      pass_on_texts(line, std::move(fields));
    });
  }
  if (format != Format::kCsv && format != Format::kTsv) {
    fail("input", "{} must be jsonl, csv or tsv, got {} (--format says what it is)", *source, format_name(format));
  }
  std::vector<std::string> names;
  const auto read_header = [&](const CsvRow& row) {
    std::set<std::string_view> seen;
    for (const std::string_view name : row.columns) {
      if (!seen.insert(name).second) {
        refuse(row.line, fmt::format("must name each column once, got {} twice", io::printable(name)));
      }
      names.emplace_back(name);
    }
    return InputFile::FirstRow::kNames;
  };
  const auto take_row = [&](const CsvRow& row) {
    nlohmann::json fields = nlohmann::json::object();
    for (size_t i = 0; i < names.size(); ++i) fields[names[i]] = row.columns[i];
    pass_on_texts(row.line, std::move(fields));
  };
  file.read_rows(delimiter_of(format), read_header, take_row, refuse);
}

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
  fail("input", "{} must have a field {}, got {} (--columns or --field says which field is what)", place(),
       io::printable(name), names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

std::string Record::text(const std::string& name) const {
  const nlohmann::json& value = at(name);
  if (const std::optional<std::string> text = text_of(value)) return *text;
  fail("input", "{} must have a text as {}, got {}", place(), io::printable(name), io::shown(value));
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
    fail("input", "{} must have a finite number as {}, got {}", place(), io::printable(name), io::shown(value));
  }
  return number;
}

RecordReader::RecordReader(RecordOptions options) : options_(std::move(options)) {
  FileList list = list_files(options_.inputs, options_.format);
  io::WrittenFiles().check_inputs(list.left_out);  // each record of a directory counts
  files_ = std::move(list.files);
}

void RecordReader::read(const std::function<void(Record&)>& record) {
  for (const std::string& path : files_) read_records(options_, path, record, bytes_read_);
}

int64_t RecordReader::total_bytes() const { return data::total_bytes(files_); }

}  // namespace rf::data
