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

struct RecordText {
  int64_t line;                          // line on which the record begins, from 1; in Parquet, its row
  std::optional<std::string_view> text;  // nullopt for null and for a bad record
  std::string_view id{};                 // SourceText::id
  std::string_view problem{};            // why the record is bad; empty if it is valid
};

// Calls `take` for each record of the file at `path` with the text of options.field and the id; arguments are valid
// only during the call. Throws Error for a table without a required column, with BadRecords::kRefuse for a bad record,
// and as InputFile and read_parquet() do.
void read_record_texts(const std::string& path, const InputFile& file, Format format, const ReadOptions& options,
                       const std::function<void(const RecordText&)>& take);

}  // namespace rf::data
