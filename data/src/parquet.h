// Reads the texts of a column, and ids, from a Parquet file by Apache Arrow's C++ library; parquet_absent.cpp replaces
// it in a build without Arrow.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rf/data/reader.h"

namespace rf::data {

// Calls `record` for each row, in order, with its text (nullopt for null) and its id (SourceText::id). options.field
// names a column of texts or bytes, with dots for structs; options.id_field names a column of texts, integers or
// double-precision numbers. Reads one page at a time. Throws Error, naming the file, for a damaged file, a field that
// is absent or inside a list, and a column of another type; always in a build without Arrow. Without Ids::kNamed, an id
// column of another type is ignored.
void read_parquet(const std::string& path, const ReadOptions& options,
                  const std::function<void(std::optional<std::string_view> text, std::string_view id)>& record);

}  // namespace rf::data
