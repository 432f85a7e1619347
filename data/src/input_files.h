// Which files the inputs mean, and what a file's name says of its format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/data/reader.h"

namespace rf::data {

// By the extension, after .gz or .zst is taken off, in any case: .txt and .text; .jsonl, .ndjson and .json (JSON
// lines); .csv; .tsv and .tab; .parquet. None for another one.
std::optional<Format> format_of(const std::string& path);

// The files of `inputs` (ReadOptions::inputs), each once. From a directory come the names that say a format, which must
// be `format` unless that is kAuto; not .json, which holds other things than records as often, when it is. Globs match
// names with a leading dot only when they give it, and files only. What lies at or below one of `outputs` is left out,
// unless it is named itself. Throws Error as DocumentReader does.
struct FileList {
  std::vector<std::string> files, left_out;
};
FileList list_files(const std::vector<std::string>& inputs, Format format,
                    const std::vector<std::string>& outputs = {});

// Of the regular files among them, as they lie on the disk.
int64_t total_bytes(const std::vector<std::string>& files);

}  // namespace rf::data
