// The texts of the records of a file, in the formats that have records: JSON lines, CSV, TSV and Parquet.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "input_file.h"
#include "rf/data/format.h"

namespace rf::data {

// A record's text, nullopt for null; `line`: where the record begins, from 1, in Parquet its row.
using TakeRecord = std::function<void(int64_t line, std::optional<std::string_view> text)>;

// Calls `take` for each record of the file at `path` with the text of `field` (ReadOptions::field), and `refuse` for
// each bad one. Throws Error for a table without that column, and as InputFile and read_parquet() do.
void read_record_texts(const std::string& path, const InputFile& file, Format format, const std::string& field,
                       const TakeRecord& take, const InputFile::Refuse& refuse);

// Throws Error for a file that was taken for text because of its name and is not.
[[noreturn]] void fail_not_text(const std::string& name);

}  // namespace rf::data
