// The files that inputs stand for, and the format that a file's name implies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rf/data/reader.h"

namespace rf::data {

// By the extension in any letter case, without .gz or .zst: .txt and .text; .jsonl, .ndjson and .json (JSON lines);
// .csv; .tsv and .tab; .parquet. nullopt for other extensions.
std::optional<Format> format_of(const std::string& path);

// The files of `inputs` (ReadOptions::inputs), each once. In a directory these are the files whose names have a format,
// which must be `format` unless that is kAuto; with kAuto .json is left out, because such files often hold other things
// than records. Globs match files only, and names with a leading dot only if the pattern has it. Files in one of
// `outputs`, or equal to one, are left out unless they are named themselves. Throws Error as DocumentReader does.
struct FileList {
  std::vector<std::string> files, left_out;
};
FileList list_files(const std::vector<std::string>& inputs, Format format,
                    const std::vector<std::string>& outputs = {});

// The size on disk of the regular files among them.
int64_t total_bytes(const std::vector<std::string>& files);

}  // namespace rf::data
