// parquet.h through Arrow's column readers: these are below Arrow's tables, so texts of every type (string, large
// string, dictionary, plain bytes) are read in the same way, and at most one page of a column is in memory.
#include <arrow/io/file.h>
#include <arrow/util/config.h>
#include <parquet/api/reader.h>
#include <parquet/api/writer.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "parquet.h"
#include "rf/data/vectors.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/json_field.h"
#include "rf/io/printable.h"

namespace rf::data {
namespace {

constexpr int64_t kBatchRows = 1024;

std::string dotted(const parquet::ColumnDescriptor& column) { return column.path()->ToDotString(); }

// The index of the column with this name; nullopt if it is missing.
std::optional<int> find_column(const parquet::SchemaDescriptor& schema, const std::string& field) {
  for (int i = 0; i < schema.num_columns(); ++i) {
    if (dotted(*schema.Column(i)) == field) return i;
  }
  return std::nullopt;
}

int column_of(const parquet::SchemaDescriptor& schema, const std::string& path, const std::string& field,
              const char* option) {
  if (const std::optional<int> found = find_column(schema, field)) return *found;
  std::string names;
  for (int i = 0; i < schema.num_columns(); ++i) names += (i == 0 ? "" : ", ") + dotted(*schema.Column(i));
  fail("input", "{} must have the column {}, got {} ({} says which)", path, io::printable(field), io::printable(names),
       option);
}

[[noreturn]] void fail_type(const parquet::ColumnDescriptor& column, const std::string& path, const char* what) {
  fail("input", "{}: the column {} must hold {} per row, got {}{}", path, io::printable(dotted(column)), what,
       parquet::TypeToString(column.physical_type()), column.max_repetition_level() > 0 ? " in lists" : "");
}

bool holds_texts(const parquet::ColumnDescriptor& column) {
  return column.physical_type() == parquet::Type::BYTE_ARRAY && column.max_repetition_level() == 0;
}

// Whether integers of the column are plain integers: not a date, and not the digits of a decimal number.
bool is_plain(const parquet::ColumnDescriptor& column) {
  const auto logical = column.logical_type();
  return logical == nullptr || logical->is_none() || logical->is_int();
}

bool holds_ids(const parquet::ColumnDescriptor& column) {
  using parquet::Type;
  if (column.max_repetition_level() > 0) return false;
  switch (column.physical_type()) {
    case Type::INT32:
    case Type::INT64: return is_plain(column);
    case Type::BYTE_ARRAY:
    case Type::DOUBLE: return true;
    default: return false;
  }
}

// The values of a column of one row group, a batch at a time.
template <typename Type>
class ColumnValues {
 public:
  using Value = typename Type::c_type;

  ColumnValues(std::shared_ptr<parquet::ColumnReader> column, int16_t defined)
      : column_(std::move(column)), defined_(defined) {}

  bool has_next() { return row_ < rows_ || read(); }
  // The next row's value, valid until the next call; nullopt for null. Must not be called after the last row.
  std::optional<Value> next() {
    const bool is_null = defined_ > 0 && levels_[static_cast<size_t>(row_)] < defined_;
    ++row_;
    if (is_null) return std::nullopt;  // the batch omits nulls
    return values_[static_cast<size_t>(value_++)];
  }

 private:
  bool read() {
    if (value_ != count_) throw parquet::ParquetException("a page has another number of values than its levels say");
    row_ = rows_ = value_ = count_ = 0;
    auto& column = static_cast<parquet::TypedColumnReader<Type>&>(*column_);
    while (rows_ == 0 && column.HasNext()) {
      rows_ = column.ReadBatch(kBatchRows, levels_.data(), nullptr, values_.data(), &count_);
    }
    return rows_ > 0;
  }

  const std::shared_ptr<parquet::ColumnReader> column_;
  const int16_t defined_;
  std::array<Value, kBatchRows> values_{};
  std::array<int16_t, kBatchRows> levels_{};
  int64_t rows_ = 0, count_ = 0;  // of the batch
  int64_t row_ = 0, value_ = 0;   // next row and value
};

std::string_view text_of(const parquet::ByteArray& value) {
  return {reinterpret_cast<const char*>(value.ptr), value.len};
}

// Ids of a row group: next_id(), called for each row in turn, returns JSON text.
using NextId = std::function<std::string()>;

template <typename Type, typename Stored = typename Type::c_type>
NextId ids_of(std::shared_ptr<parquet::ColumnReader> column, const parquet::ColumnDescriptor& descriptor) {
  const auto values = std::make_shared<ColumnValues<Type>>(std::move(column), descriptor.max_definition_level());
  return [values]() -> std::string {
    if (!values->has_next()) throw parquet::ParquetException("a column has fewer rows than another");
    const auto value = values->next();
    if (!value) return "";
    if constexpr (std::is_same_v<Type, parquet::ByteArrayType>) {
      return io::quoted_json(text_of(*value));
    } else if constexpr (std::is_same_v<Stored, double>) {
      return std::isfinite(*value) ? fmt::format("{}", *value) : "";
    } else {
      return std::to_string(static_cast<Stored>(*value));
    }
  };
}

NextId ids_of(std::shared_ptr<parquet::ColumnReader> column, const parquet::ColumnDescriptor& descriptor) {
  using parquet::ConvertedType;
  const ConvertedType::type converted = descriptor.converted_type();
  const bool is_unsigned = converted == ConvertedType::UINT_8 || converted == ConvertedType::UINT_16 ||
                           converted == ConvertedType::UINT_32 || converted == ConvertedType::UINT_64;
  switch (descriptor.physical_type()) {
    case parquet::Type::INT32:
      return is_unsigned ? ids_of<parquet::Int32Type, uint32_t>(std::move(column), descriptor)
                         : ids_of<parquet::Int32Type>(std::move(column), descriptor);
    case parquet::Type::INT64:
      return is_unsigned ? ids_of<parquet::Int64Type, uint64_t>(std::move(column), descriptor)
                         : ids_of<parquet::Int64Type>(std::move(column), descriptor);
    case parquet::Type::DOUBLE: return ids_of<parquet::DoubleType>(std::move(column), descriptor);
    default: return ids_of<parquet::ByteArrayType>(std::move(column), descriptor);
  }
}

// The columns that are read.
struct Columns {
  int text;
  std::optional<int> id;
};

Columns columns_of(const parquet::SchemaDescriptor& schema, const std::string& path, const ReadOptions& options) {
  Columns columns{column_of(schema, path, options.field, "--field"), std::nullopt};
  if (!holds_texts(*schema.Column(columns.text))) fail_type(*schema.Column(columns.text), path, "one text");
  if (options.ids == Ids::kNamed) {
    columns.id = column_of(schema, path, options.id_field, "--id-field");
    if (!holds_ids(*schema.Column(*columns.id))) fail_type(*schema.Column(*columns.id), path, "one text or number");
  } else if (options.ids == Ids::kIfPresent) {
    columns.id = find_column(schema, options.id_field);
    if (columns.id && !holds_ids(*schema.Column(*columns.id))) columns.id.reset();
  }
  return columns;
}

// id: a number or a text. embedding: a list of floats. Neither the list nor its elements may be null; the format
// prescribes three levels for lists.
std::shared_ptr<parquet::schema::GroupNode> vector_schema(IdColumn ids) {
  namespace schema = parquet::schema;
  using parquet::Repetition;
  schema::NodeVector columns;
  if (ids == IdColumn::kIntegers) {
    columns.push_back(schema::PrimitiveNode::Make("id", Repetition::OPTIONAL, parquet::Type::INT64));
  } else if (ids == IdColumn::kTexts) {
    columns.push_back(schema::PrimitiveNode::Make("id", Repetition::OPTIONAL, parquet::LogicalType::String(),
                                                  parquet::Type::BYTE_ARRAY));
  }
  const auto element = schema::PrimitiveNode::Make("element", Repetition::REQUIRED, parquet::Type::FLOAT);
  const auto list = schema::GroupNode::Make("list", Repetition::REPEATED, {element});
  columns.push_back(schema::GroupNode::Make("embedding", Repetition::REQUIRED, {list}, parquet::LogicalType::List()));
  return std::static_pointer_cast<schema::GroupNode>(schema::GroupNode::Make("schema", Repetition::REQUIRED, columns));
}

// A file that is removed unless it is renamed.
struct TemporaryFile {
  std::string path;
  ~TemporaryFile() {
    std::error_code error;
    if (!path.empty()) std::filesystem::remove(path, error);
  }
};

using Rows = std::span<const VectorRow>;

void write_integers(parquet::Int64Writer& column, Rows rows) {
  for (const VectorRow& row : rows) {
    const auto defined = static_cast<int16_t>(row.id.empty() ? 0 : 1);
    int64_t number = 0;
    std::from_chars(row.id.data(), row.id.data() + row.id.size(), number);
    column.WriteBatch(1, &defined, nullptr, &number);
  }
}

void write_texts(parquet::ByteArrayWriter& column, Rows rows) {
  for (const VectorRow& row : rows) {
    const auto defined = static_cast<int16_t>(row.id.empty() ? 0 : 1);
    const bool is_text = row.id.starts_with('"');
    const std::string text = is_text ? nlohmann::json::parse(row.id).get<std::string>() : std::string(row.id);
    const parquet::ByteArray value(text);
    column.WriteBatch(1, &defined, nullptr, &value);
  }
}

void write_vectors(parquet::FloatWriter& column, Rows rows, int64_t columns) {
  constexpr size_t kBatchRows = 256;
  const auto width = static_cast<size_t>(columns);
  const std::vector<int16_t> defined(kBatchRows * width, 1);
  std::vector<int16_t> repeated(kBatchRows * width, 1);
  for (size_t row = 0; row < kBatchRows; ++row) repeated[row * width] = 0;
  std::vector<float> values;
  for (size_t first = 0; first < rows.size(); first += kBatchRows) {
    values.clear();
    for (const VectorRow& row : rows.subspan(first, std::min(kBatchRows, rows.size() - first))) {
      values.insert(values.end(), row.vector, row.vector + columns);
    }
    column.WriteBatch(std::ssize(values), defined.data(), repeated.data(), values.data());
  }
}

void write_row_group(parquet::ParquetFileWriter& file, Rows rows, int64_t columns, IdColumn ids) {
  parquet::RowGroupWriter& group = *file.AppendRowGroup();
  if (ids == IdColumn::kIntegers) write_integers(static_cast<parquet::Int64Writer&>(*group.NextColumn()), rows);
  if (ids == IdColumn::kTexts) write_texts(static_cast<parquet::ByteArrayWriter&>(*group.NextColumn()), rows);
  write_vectors(static_cast<parquet::FloatWriter&>(*group.NextColumn()), rows, columns);
  group.Close();
}

}  // namespace

std::string arrow_version() { return ARROW_VERSION_STRING; }

void check_parquet_output() {}

void write_parquet_vectors(const std::string& path, int64_t rows, int64_t columns, IdColumn ids,
                           const std::function<VectorRow()>& next) {
  constexpr int64_t kGroupBytes = int64_t{1} << 26, kGroupRows = int64_t{1} << 20;
  TemporaryFile temporary{path + ".tmp"};
  try {
    const auto opened = arrow::io::FileOutputStream::Open(temporary.path);
    if (!opened.ok()) throw parquet::ParquetException(opened.status().message());
    parquet::WriterProperties::Builder properties;
    properties.disable_dictionary()->compression(parquet::Compression::UNCOMPRESSED);
    const auto file = parquet::ParquetFileWriter::Open(*opened, vector_schema(ids), properties.build());
    const int64_t group = std::max<int64_t>(1, kGroupBytes / (columns * static_cast<int64_t>(sizeof(float))));
    std::vector<VectorRow> waiting;
    for (int64_t row = 0; row < rows; ++row) {
      waiting.push_back(next());
      if (std::ssize(waiting) < std::min(group, kGroupRows) && row + 1 < rows) continue;
      write_row_group(*file, waiting, columns, ids);
      waiting.clear();
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

void read_parquet(const std::string& path, const ReadOptions& options,
                  const std::function<void(std::optional<std::string_view>, std::string_view)>& record) {
  try {
    parquet::ReaderProperties properties = parquet::default_reader_properties();
    properties.enable_buffered_stream();
    properties.set_page_checksum_verification(true);
    const auto file = parquet::ParquetFileReader::OpenFile(path, /*memory_map=*/false, properties);
    const auto metadata = file->metadata();
    const Columns columns = columns_of(*metadata->schema(), path, options);
    const int16_t defined = metadata->schema()->Column(columns.text)->max_definition_level();
    for (int number = 0; number < metadata->num_row_groups(); ++number) {
      const auto group = file->RowGroup(number);
      NextId next_id = [] { return std::string(); };
      if (columns.id) next_id = ids_of(group->Column(*columns.id), *metadata->schema()->Column(*columns.id));
      ColumnValues<parquet::ByteArrayType> texts(group->Column(columns.text), defined);
      while (texts.has_next()) {
        const std::optional<parquet::ByteArray> text = texts.next();
        record(text ? std::optional(text_of(*text)) : std::nullopt, next_id());
      }
    }
  } catch (const parquet::ParquetException& error) {
    fail("input", "{} must be an undamaged Parquet file, got: {}", path, error.what());
  }
}

}  // namespace rf::data
