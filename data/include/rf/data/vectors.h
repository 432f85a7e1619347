// Vectors, with the ids of their texts, to a Parquet file, with Apache Arrow's C++ library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace rf::data {

// The version of Apache Arrow, with which Parquet files are read and written; "" in a build without it.
std::string arrow_version();

// Throws Error in a build without Arrow.
void check_parquet_output();

// What the column "id" holds: it is absent, of int64, or of texts.
enum class IdColumn { kNone, kIntegers, kTexts };
// That which holds what `column` holds and `id`, JSON text or empty: kIntegers for integers of 64 bits only.
IdColumn with_id(IdColumn column, std::string_view id);

struct VectorRow {
  const float* vector;  // [columns]
  std::string_view id;  // JSON text: a text is stored as it is, and of other values, in a column of texts, their JSON.
                        // Empty: null
};

// Writes `rows` rows: the column "id", and lists of `columns` floats, the column "embedding". next() gives them in
// order, each valid until the end. The file appears under its name when it is complete. Throws Error for a file that
// cannot be written; always in a build without Arrow.
void write_parquet_vectors(const std::string& path, int64_t rows, int64_t columns, IdColumn ids,
                           const std::function<VectorRow()>& next);

}  // namespace rf::data
