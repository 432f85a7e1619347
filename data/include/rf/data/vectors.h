// Vectors to a Parquet file, with Apache Arrow's C++ library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace rf::data {

// The version of Apache Arrow, with which Parquet files are read and written; "" in a build without it.
std::string arrow_version();

// Throws Error in a build without Arrow.
void check_parquet_output();

// Writes `rows` lists of `columns` floats, the column "embedding". read(first, count) gives the rows from `first` on,
// [count, columns], valid until its next call. The file appears under its name when it is complete. Throws Error for a
// file that cannot be written; always in a build without Arrow.
void write_parquet_vectors(const std::string& path, int64_t rows, int64_t columns,
                           const std::function<const float*(int64_t first, int64_t count)>& read);

}  // namespace rf::data
