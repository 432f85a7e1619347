// The formats of input files: their names, and the files that have each. How a file of a format is read is in
// src/input_file.h (text, JSON lines, CSV, TSV) and src/parquet.h. docs/formats.md describes them for users.
#pragma once

#include <optional>
#include <string>

namespace rf::data {

enum class Format {
  kAuto,  // by the name of each file: see format_of()
  kText,
  kJsonLines,  // one JSON object per line
  kCsv,        // with quotes, and line ends in quotes, as in RFC 4180
  kTsv,        // the same with tabs
  kParquet,    // where the build found Apache Arrow
};
Format format(const std::string& name);  // "auto", "text", "jsonl", "csv", "tsv", "parquet"; throws Error otherwise
const char* format_name(Format format);  // the same names

// By the extension in any letter case, without .gz or .zst: .txt and .text; .jsonl, .ndjson and .json (JSON lines);
// .csv; .tsv and .tab; .parquet. nullopt for other extensions.
std::optional<Format> format_of(const std::string& path);
// Whether a directory is searched for such a file: its name must have `format`; with kAuto any format, but not .json,
// because such files often hold other things than records.
bool is_searched_for(const std::string& path, Format format);
// "text, JSON lines, CSV, TSV or Parquet", or the name of another format than kAuto.
std::string searched_formats(Format format);

char delimiter_of(Format format);  // between the columns of a row; 0: the format has no rows

}  // namespace rf::data
