// The texts of a column of a Parquet file, read by Apache Arrow's C++ library; parquet_absent.cpp takes its place in a
// build without Arrow.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace rf::data {

// Calls `record` for each row, in order, with nullopt for null. `field`: the name of a column of texts or bytes, with
// dots into structs. Reads one page at a time. Throws Error, naming the file, for a damaged file, a field that is
// absent or inside a list, and a column of another type; always in a build without Arrow.
void read_parquet(const std::string& path, const std::string& field,
                  const std::function<void(std::optional<std::string_view>)>& record);

}  // namespace rf::data
