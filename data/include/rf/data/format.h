// The formats of input files: their names and file extensions. src/input_file.h (text, JSON lines, CSV, TSV) and
// src/parquet.h read them. docs/formats.md describes them for users.
#pragma once

#include <optional>
#include <string>

namespace rf::data {

enum class Format {
  kAuto,  // by each file name: see format_of()
  kText,
  kJsonLines,  // one JSON object per line
  kCsv,        // with quotes, and line ends in quotes, as in RFC 4180
  kTsv,        // the same with tabs
  kParquet,    // if the build found Apache Arrow
};
Format format(const std::string& name);  // "auto", "text", "jsonl", "csv", "tsv", "parquet"; throws Error otherwise
const char* format_name(Format format);  // the same names

// By the extension in any letter case, without .gz or .zst: .txt and .text; .jsonl, .ndjson and .json (JSON lines);
// .csv; .tsv and .tab; .parquet. nullopt for other extensions.
std::optional<Format> format_of(const std::string& path);
// Whether a search of a directory includes this file: its name must have `format`; with kAuto, any format except .json,
// because such files often contain other data than records.
bool is_searched_for(const std::string& path, Format format);
// "text, JSON lines, CSV, TSV or Parquet" for kAuto, otherwise the name of the format.
std::string searched_formats(Format format);

char delimiter_of(Format format);  // between the columns of a row; 0 for formats without rows

}  // namespace rf::data
