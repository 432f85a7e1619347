#include "rf/data/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "byte_source.h"
#include "document_cutter.h"
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
    if (format != Format::kAuto && format != Format::kText) return read_records(format);
    read_text(format == Format::kAuto && path_ != kStandardInput);
  }

 private:
  // `guessed`: neither the name nor --format says that the file is text.
  void read_text(bool guessed) {
    bool is_first = true;
    file_.read_pieces([&](std::string_view text) {
      const bool is_tested = guessed && std::exchange(is_first, false);
      if (is_tested && text.find('\0') != std::string_view::npos) fail_not_text(file_.name());
      splitter_.add(text);
    });
    splitter_.finish();
  }

  void read_records(Format format) {
    read_record_texts(path_, file_, format, options_, [&](const RecordText& record) {
      if (!record.problem.empty()) refuse(record.line, record.problem);
      if (record.text) add_record(*record.text);
    });
    if (format == Format::kParquet) counts_.bytes += data::total_bytes({path_});
  }

  void add_record(std::string_view text) {
    if (options_.document_rule == DocumentRule::kFile) {
      cutter_.add_document(text);
    } else {
      splitter_.add(text);
      splitter_.finish();
    }
  }
  void refuse(int64_t line, std::string_view problem) {
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
  fail("input", "the document rule must be file, blank-line or line, got {}", io::printable(name));
}
const char* document_rule_name(DocumentRule rule) {
  return std::ranges::find(kDocumentRules, rule, &std::pair<DocumentRule, const char*>::first)->second;
}

DocumentReader::DocumentReader(ReadOptions options) : options_(std::move(options)) {
  FileList list = list_files(options_.inputs, options_.format, options_.outputs, options_.replaced);
  files_ = std::move(list.files);
  left_out_ = std::move(list.left_out);
  if (options_.field.empty()) fail("input", "the field must have a name, got none");
}

int64_t DocumentReader::total_bytes() const { return data::total_bytes(files_); }

void DocumentReader::keep_files(size_t begin, size_t end) {
  files_ = {files_.begin() + static_cast<ptrdiff_t>(begin), files_.begin() + static_cast<ptrdiff_t>(end)};
}

void DocumentReader::read(const std::function<void(const DocumentPart&)>& piece) {
  counts_ = {};
  for (const std::string& path : files_) {
    FileDocuments(options_, path, piece, counts_).run();
    ++counts_.files;
  }
}

}  // namespace rf::data
