#include "rf/data/reader.h"

#include <algorithm>
#include <utility>

#include "byte_source.h"
#include "document_splitter.h"
#include "input_file.h"
#include "input_files.h"
#include "record_texts.h"
#include "rf/io/error.h"
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
      take({record.text.value_or(std::string_view()), file.name(), record.line, record.problem, record.id});
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
