// The texts of a column of a Parquet file, through Apache Arrow's C++ library; parquet_absent.cpp stands in for it in a
// build that did not find Arrow.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace rf::data {

// Calls `record` for each row, in order; null has no text. `field`: the name of a column of texts or bytes, with dots
// into structs. Reads a page at a time. Throws Error, naming the file, for one that is damaged, a field that is not
// there or lies in a list, and a column of another type; always in a build without Arrow.
void read_parquet(const std::string& path, const std::string& field,
                  const std::function<void(std::optional<std::string_view>)>& record);

}  // namespace rf::data
