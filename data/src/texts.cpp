#include "rf/data/texts.h"

#include <algorithm>

#include "byte_source.h"
#include "input_file.h"
#include "input_files.h"
#include "record_texts.h"
#include "rf/io/error.h"

namespace rf::data {
namespace {

void read_lines(const InputFile& file, bool is_guessed, const std::function<void(const SourceText&)>& take) {
  file.read_all_lines([&](int64_t number, std::string_view line) {
    if (is_guessed && line.find('\0') != std::string_view::npos) fail_not_text(file.name());
    if (line.ends_with('\r')) line.remove_suffix(1);
    take({line, file.name(), number});
  });
}

}  // namespace

TextReader::TextReader(ReadOptions options) : options_(std::move(options)) {
  FileList list = list_files(options_.inputs, options_.format, options_.outputs, options_.replaced);
  files_ = std::move(list.files);
  left_out_ = std::move(list.left_out);
  if (options_.field.empty() || options_.id_field.empty()) fail("input", "the field must have a name, got none");
}

int64_t TextReader::total_bytes() const { return data::total_bytes(files_); }

void TextReader::read_file(const std::string& path, const std::function<void(const SourceText&)>& take) {
  constexpr size_t kPieceBytes = 4096;  // small: the caller asks for bytes_read() after each text
  const InputFile file(path, options_.quotes, bytes_read_, kPieceBytes);
  const Format format = options_.format != Format::kAuto ? options_.format : format_of(path).value_or(Format::kAuto);
  if (format == Format::kAuto || format == Format::kText) {
    return read_lines(file, format == Format::kAuto && path != kStandardInput, take);
  }
  read_record_texts(path, file, format, options_, [&](const RecordText& record) {
    if (!record.problem.empty() && options_.bad_records == BadRecords::kRefuse) {
      fail("input", "{} line {} {}", file.name(), record.line, record.problem);
    }
    take({record.text.value_or(std::string_view()), file.name(), record.line, record.problem, record.id});
  });
  if (format == Format::kParquet) bytes_read_ += data::total_bytes({path});
}

void TextReader::read(const std::function<void(const SourceText&)>& take) {
  bytes_read_ = 0;
  for (const std::string& path : files_) read_file(path, take);
}

}  // namespace rf::data
