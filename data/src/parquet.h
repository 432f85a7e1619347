// The texts of a column, and ids, of a Parquet file, read by Apache Arrow's C++ library; parquet_absent.cpp takes its
// place in a build without Arrow.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rf/data/reader.h"

namespace rf::data {

// Calls `record` for each row, in order, with nullopt for null, and with its id (SourceText::id). options.field: the
// name of a column of texts or bytes, with dots into structs; options.id_field: that of a column of texts, integers or
// double-precision numbers. Reads one page at a time. Throws Error, naming the file, for a damaged file, a field that
// is absent or inside a list, and a column of another type; always in a build without Arrow. Without Ids::kNamed such a
// column has no ids.
void read_parquet(const std::string& path, const ReadOptions& options,
                  const std::function<void(std::optional<std::string_view> text, std::string_view id)>& record);

}  // namespace rf::data
