// Writes vectors, with the ids of their texts, to a Parquet file by Apache Arrow's C++ library.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace rf::data {

// The version of Apache Arrow, which reads and writes Parquet files; "" in a build without it.
std::string arrow_version();

// Throws Error in a build without Arrow.
void check_parquet_output();

// The type of the column "id": absent, int64, or text.
enum class IdColumn { kNone, kIntegers, kTexts };
// The column type that can store `column` and also `id`, which is JSON text or empty: kIntegers only for 64-bit
// integers.
inline IdColumn with_id(IdColumn column, std::string_view id) {
  if (id.empty()) return column;
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  const bool is_integer = error == std::errc() && rest == id.data() + id.size();
  return is_integer && column != IdColumn::kTexts ? IdColumn::kIntegers : IdColumn::kTexts;
}

struct VectorRow {
  const float* vector;  // [columns]
  std::string_view id;  // JSON text. A text column stores texts unchanged and other values as JSON. Empty: null
};

// Writes `rows` rows with the columns "id" and "embedding", a list of `columns` floats. next() returns them in order,
// each valid until the end. The file gets its name when it is complete. Throws Error if the file cannot be written, and
// always in a build without Arrow.
void write_parquet_vectors(const std::string& path, int64_t rows, int64_t columns, IdColumn ids,
                           const std::function<VectorRow()>& next);

}  // namespace rf::data
