// parquet.h through Arrow's column readers: below Arrow's tables, so that texts of every kind (string, large string,
// dictionary, plain bytes) come alike and no more than a page of a column is in memory.
#include <parquet/api/reader.h>

#include <array>

#include "parquet.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::data {
namespace {

constexpr int64_t kBatchRows = 1024;

int find_column(const parquet::SchemaDescriptor& schema, const std::string& path, const std::string& field) {
  std::string names;
  for (int i = 0; i < schema.num_columns(); ++i) {
    const parquet::ColumnDescriptor& column = *schema.Column(i);
    const std::string name = column.path()->ToDotString();
    names += (names.empty() ? "" : ", ") + name;
    if (name != field) continue;
    if (column.physical_type() != parquet::Type::BYTE_ARRAY || column.max_repetition_level() > 0) {
      fail("input", "{}: the column {} must hold one text per row, got {}{}", path, io::printable(field),
           parquet::TypeToString(column.physical_type()), column.max_repetition_level() > 0 ? " in lists" : "");
    }
    return i;
  }
  fail("input", "{} must have the column {}, got {} (--field says which)", path, io::printable(field),
       io::printable(names));
}

void read_column(parquet::ByteArrayReader& column, int16_t defined,
                 const std::function<void(std::optional<std::string_view>)>& record) {
  std::array<parquet::ByteArray, kBatchRows> values;
  std::array<int16_t, kBatchRows> levels;
  while (column.HasNext()) {
    int64_t count = 0;
    const int64_t rows = column.ReadBatch(kBatchRows, levels.data(), nullptr, values.data(), &count);
    int64_t next = 0;  // values of null are left out
    for (int64_t row = 0; row < rows; ++row) {
      if (defined > 0 && levels[row] < defined) {
        record(std::nullopt);
      } else {
        const parquet::ByteArray& value = values[next++];
        record(std::string_view(reinterpret_cast<const char*>(value.ptr), value.len));
      }
    }
    if (next != count) throw parquet::ParquetException("a page has another number of values than its levels say");
  }
}

}  // namespace

void read_parquet(const std::string& path, const std::string& field,
                  const std::function<void(std::optional<std::string_view>)>& record) {
  try {
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();
    properties.set_page_checksum_verification(true);
    const auto file = parquet::ParquetFileReader::OpenFile(path, /*memory_map=*/false, properties);
    const auto metadata = file->metadata();
    const int column = find_column(*metadata->schema(), path, field);
    const int16_t defined = metadata->schema()->Column(column)->max_definition_level();
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      const std::shared_ptr<parquet::ColumnReader> reader = file->RowGroup(group)->Column(column);
      read_column(static_cast<parquet::ByteArrayReader&>(*reader), defined, record);
    }
  } catch (const parquet::ParquetException& error) {
    fail("input", "{} must be an undamaged Parquet file, got: {}", path, error.what());
  }
}

}  // namespace rf::data
