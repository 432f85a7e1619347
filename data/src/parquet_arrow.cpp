// parquet.h through Arrow's column readers: below Arrow's tables, so that texts of every kind (string, large string,
// dictionary, plain bytes) come alike and no more than a page of a column is in memory.
#include <arrow/io/file.h>
#include <arrow/util/config.h>
#include <parquet/api/reader.h>
#include <parquet/api/writer.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "parquet.h"
#include "rf/data/vectors.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/resumable_file.h"

namespace rf::data {
namespace {

constexpr int64_t kBatchRows = 1024;

int column_of(const parquet::SchemaDescriptor& schema, const std::string& path, const std::string& field) {
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

// embedding: a list of floats, neither of them null, in the three levels that the format prescribes for lists.
std::shared_ptr<parquet::schema::GroupNode> vector_schema() {
  namespace schema = parquet::schema;
  using parquet::Repetition;
  const auto element = schema::PrimitiveNode::Make("element", Repetition::REQUIRED, parquet::Type::FLOAT);
  const auto list = schema::GroupNode::Make("list", Repetition::REPEATED, {element});
  const auto vector = schema::GroupNode::Make("embedding", Repetition::REQUIRED, {list}, parquet::LogicalType::List());
  return std::static_pointer_cast<schema::GroupNode>(schema::GroupNode::Make("schema", Repetition::REQUIRED, {vector}));
}

// A file that is removed unless it is renamed.
struct TemporaryFile {
  std::string path;
  ~TemporaryFile() {
    std::error_code error;
    if (!path.empty()) std::filesystem::remove(path, error);
  }
};

void write_row_group(parquet::ParquetFileWriter& file, int64_t first, int64_t rows, int64_t columns,
                     const std::function<const float*(int64_t, int64_t)>& read) {
  constexpr int64_t kBatchRows = 256;
  auto& column = static_cast<parquet::FloatWriter&>(*file.AppendRowGroup()->NextColumn());
  const std::vector<int16_t> defined(static_cast<size_t>(kBatchRows * columns), 1);
  std::vector<int16_t> repeated(static_cast<size_t>(kBatchRows * columns), 1);
  for (int64_t row = 0; row < kBatchRows; ++row) repeated[static_cast<size_t>(row * columns)] = 0;
  for (int64_t row = 0; row < rows; row += kBatchRows) {
    const int64_t count = std::min(kBatchRows, rows - row);
    column.WriteBatch(count * columns, defined.data(), repeated.data(), read(first + row, count));
  }
  column.Close();
}

}  // namespace

std::string arrow_version() {
  return ARROW_VERSION_STRING;
}

void check_parquet_output() {}

void write_parquet_vectors(const std::string& path, int64_t rows, int64_t columns,
                           const std::function<const float*(int64_t, int64_t)>& read) {
  constexpr int64_t kGroupBytes = int64_t{1} << 26;
  TemporaryFile temporary{path + ".tmp"};
  try {
    const auto opened = arrow::io::FileOutputStream::Open(temporary.path);
    if (!opened.ok()) throw parquet::ParquetException(opened.status().message());
    parquet::WriterProperties::Builder properties;
    properties.disable_dictionary()->compression(parquet::Compression::UNCOMPRESSED);
    const auto file = parquet::ParquetFileWriter::Open(*opened, vector_schema(), properties.build());
    const int64_t group = std::max<int64_t>(1, kGroupBytes / (columns * static_cast<int64_t>(sizeof(float))));
    for (int64_t first = 0; first < rows; first += group) {
      write_row_group(*file, first, std::min(group, rows - first), columns, read);
    }
    file->Close();
    if (const arrow::Status closed = (*opened)->Close(); !closed.ok()) {
      throw parquet::ParquetException(closed.message());
    }
    io::rename_synced(temporary.path, path);
    temporary.path.clear();
  } catch (const parquet::ParquetException& error) {
    fail(path, "cannot write: {}", error.what());
  }
}

void read_parquet(const std::string& path, const std::string& field,
                  const std::function<void(std::optional<std::string_view>)>& record) {
  try {
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();
    properties.set_page_checksum_verification(true);
    const auto file = parquet::ParquetFileReader::OpenFile(path, /*memory_map=*/false, properties);
    const auto metadata = file->metadata();
    const int column = column_of(*metadata->schema(), path, field);
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
