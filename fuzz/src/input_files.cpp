// Input files of every format: as documents, as texts with ids, and as records.
#include <nlohmann/json.hpp>

#include "memory_directory.h"
#include "rf/data/reader.h"
#include "rf/data/records.h"
#include "rf/io/error.h"
#include "target_functions.h"

namespace rf::fuzz {

namespace {

constexpr const char* kNames[] = {"a.txt",     "a.jsonl",    "a.csv",     "a.tsv",    "a.parquet", "a.txt.gz",
                                  "a.txt.zst", "a.jsonl.gz", "a.csv.zst", "a.csv.gz", "a.tsv.zst"};

void read_documents(const std::string& path, unsigned options) {
  try {
    data::ReadOptions read = {.inputs = {path}};
    read.field = (options & 1) != 0 ? "text" : (options & 2) != 0 ? "a.b" : "1";
    read.document_rule = static_cast<data::DocumentRule>(options / 4 % 3);
    read.quotes = (options & 16) != 0 ? data::Quotes::kText : data::Quotes::kRead;
    read.bad_records = (options & 32) != 0 ? data::BadRecords::kSkip : data::BadRecords::kRefuse;
    data::DocumentReader reader(read);
    size_t bytes = 0;
    reader.read([&](const data::DocumentPart& part) { bytes += part.text.size(); });
    check(reader.counts().files == 1);
  } catch (const Error&) {
  }
}

void read_texts(const std::string& path, unsigned options) {
  try {
    data::TextReader reader({.inputs = {path},
                             .field = (options & 1) != 0   ? "text"
                                      : (options & 2) != 0 ? "a.b"
                                                           : "1",
                             .ids = (options & 4) != 0 ? data::Ids::kNamed : data::Ids::kIfPresent,
                             .id_field = (options & 8) != 0 ? "id" : "2",
                             .bad_records = data::BadRecords::kSkip});
    reader.read([](const data::SourceText& text) {
      check(text.id.empty() || (nlohmann::json::accept(text.id) && text.id.find('\n') == std::string_view::npos));
    });
  } catch (const Error&) {
  }
}

void read_records(const std::string& path, unsigned options) {
  try {
    data::RecordReader reader({.inputs = {path},
                               .quotes = (options & 16) != 0 ? data::Quotes::kText : data::Quotes::kRead,
                               .text_field = (options & 1) != 0 ? "text" : ""});
    int64_t last = 0;
    reader.read([&](data::Record& record) {
      check(record.fields.is_object() && record.line > last);
      last = record.line;
    });
  } catch (const Error&) {
  }
}

}  // namespace

void input_files(std::string_view bytes) {
  if (bytes.size() < 2) return;
  static const MemoryDirectory directory;
  const std::string name = kNames[static_cast<unsigned char>(bytes[0]) % std::size(kNames)];
  const auto options = static_cast<unsigned char>(bytes[1]);
  directory.put(name, bytes.substr(2));
  read_documents(directory.path() + "/" + name, options);
  read_texts(directory.path() + "/" + name, options);
  read_records(directory.path() + "/" + name, options);
  directory.put(name, "");
}

}  // namespace rf::fuzz
