// The file of roformer embed (embedding_output.h).
#include "embedding_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/half.h"
#include "rf/io/npy.h"
#include "rf/io/printable.h"

namespace rf::cli {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kOutputWhere = "output";
constexpr const char* kKind = "roformer embed";
constexpr auto kCheckpointInterval = std::chrono::seconds(2);

// Differences between settings: "pooling mean, not cls; dtype ...".
std::string differences(const json& earlier, const json& now) {
  std::string text;
  for (const auto& [name, value] : now.items()) {
    const json other = earlier.contains(name) ? earlier.at(name) : json();
    if (other == value) continue;
    text += fmt::format("{}{} {} (now {})", text.empty() ? "" : ", ", name, io::shown(other), io::shown(value));
  }
  return text;
}

constexpr std::pair<data::IdColumn, const char*> kIdColumns[] = {
    {data::IdColumn::kNone, "none"}, {data::IdColumn::kIntegers, "integers"}, {data::IdColumn::kTexts, "texts"}};

const char* name_of(data::IdColumn column) {
  return std::ranges::find(kIdColumns, column, &std::pair<data::IdColumn, const char*>::first)->second;
}

std::optional<data::IdColumn> id_column(const json& name) {
  for (const auto& [column, known] : kIdColumns) {
    if (name == known) return column;
  }
  return std::nullopt;
}

json read_state(const std::string& path) {
  const json state = io::read_json(path);
  const bool is_ours = state.is_object() && state.value("kind", json()) == kKind && state.contains("settings") &&
                       state.at("settings").is_object() && state.contains("inputs") && state.at("inputs").is_object() &&
                       state.value("rows", json()).is_number_unsigned() &&
                       state.value("bytes", json()).is_number_unsigned() && state.value("digest", json()).is_string() &&
                       id_column(state.value("ids", "none"));
  if (!is_ours) fail(path, "must be the state of {}, got other JSON", kKind);
  return state;
}

void append_halves(std::span<const float> vector, std::string& bytes) {
  for (const float x : vector) {
    const uint16_t half = io::half_of_float(x);
    bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
  }
}

// A row of an incomplete Parquet file: the size of the id in 4 bytes, the id, zeros up to a multiple of 4 bytes, and
// the vector.
size_t padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

void append_row(std::string_view id, std::span<const float> vector, std::string& bytes) {
  const auto size = static_cast<uint32_t>(id.size());
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += id;
  bytes.append(padded(id.size()) - id.size(), '\0');
  bytes.append(reinterpret_cast<const char*>(vector.data()), vector.size_bytes());
}

// Reads the rows of such a file in turn.
class RowBytes {
 public:
  RowBytes(std::span<const std::byte> bytes, int64_t dimensions)
      : at_(bytes.data()), vector_bytes_(static_cast<size_t>(dimensions) * sizeof(float)) {}
  data::VectorRow next() {
    uint32_t size = 0;
    std::memcpy(&size, at_, sizeof size);
    const std::byte* const id = at_ + sizeof size;
    const std::byte* const vector = id + padded(size);
    at_ = vector + vector_bytes_;
    return {reinterpret_cast<const float*>(vector), {reinterpret_cast<const char*>(id), size}};
  }

 private:
  const std::byte* at_;
  const size_t vector_bytes_;
};

}  // namespace

VectorFormat vector_format_of(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".npy") return VectorFormat::kNpy;
  if (extension == ".jsonl") return VectorFormat::kJsonLines;
  if (extension == ".parquet") return VectorFormat::kParquet;
  fail(kOutputWhere, "the file must be named .npy, .jsonl or .parquet, got {}", path);
}

bool holds_ids(VectorFormat format) { return format != VectorFormat::kNpy; }

EmbeddingOutput::EmbeddingOutput(OutputSettings settings)
    : settings_(std::move(settings)), format_(vector_format_of(settings_.path)), file_(settings_.path) {
  if (format_ == VectorFormat::kParquet) data::check_parquet_output();
  const bool has_state = io::has_file(state_path());
  const bool drops = has_state && settings_.restart == OutputSettings::Restart::kYes;
  if (file_.size() == 0 || drops) {
    begin();
  } else if (has_state) {
    resume(read_state(state_path()));
  } else {
    fail(kOutputWhere, "{} must be what {} wrote, got a file without {} (remove it)", partial_path(), kKind,
         state_path());
  }
}

void EmbeddingOutput::begin() {
  file_.truncate(0);
  first_inputs_ = settings_.inputs;
  save_state();           // so that a state exists before the part contains data
  last_checkpoint_ = {};  // so that the first rows get a checkpoint
  if (format_ == VectorFormat::kNpy && !is_quantized())
    file_.write(io::npy_header(settings_.path, settings_.dtype, {0, settings_.dimensions}));
}

void EmbeddingOutput::resume(const json& state) {
  const std::string different = differences(state.at("settings"), settings_.settings);
  if (!different.empty()) {
    fail(kOutputWhere,
         "{} must be continued with the settings it was begun with, got others: {} (--restart begins anew)",
         partial_path(), different);
  }
  const auto bytes = state.at("bytes").get<size_t>();
  if (bytes > file_.size()) {
    fail(kOutputWhere, "{} must have the {} bytes that its state says, got {} (--restart begins anew)", partial_path(),
         bytes, file_.size());
  }
  if (bytes == 0) return begin();
  file_.truncate(bytes);
  rows_ = state.at("rows").get<int64_t>();
  digest_ = state.at("digest").get<std::string>();
  ids_ = *id_column(state.value("ids", "none"));
  first_inputs_ = state.at("inputs");
  last_checkpoint_ = std::chrono::steady_clock::now();
}

std::vector<std::string> EmbeddingOutput::paths_of(const std::string& path) {
  return {path, path + ".part", path + ".part.json"};
}

std::string EmbeddingOutput::changed_inputs() const {
  std::string names;
  for (const auto& [name, facts] : settings_.inputs.items()) {
    if (first_inputs_.value(name, json()) != facts) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void EmbeddingOutput::write(std::span<const data::VectorRow> rows, const std::string& digest) {
  const std::lock_guard lock(mutex_);
  const auto dimensions = static_cast<size_t>(settings_.dimensions);
  bytes_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span vector(rows[i].vector, dimensions);
    ids_ = data::with_id(ids_, rows[i].id);
    if (format_ == VectorFormat::kParquet) {
      append_row(rows[i].id, vector, bytes_);
    } else if (settings_.dtype == io::DType::kF16) {
      append_halves(vector, bytes_);
    } else {
      bytes_.append(reinterpret_cast<const char*>(vector.data()), vector.size_bytes());
    }
  }
  append(bytes_, std::ssize(rows), digest);
}

void EmbeddingOutput::write_lines(std::string_view lines, int64_t count, const std::string& digest) {
  const std::lock_guard lock(mutex_);
  append(lines, count, digest);
}

void EmbeddingOutput::append(std::string_view bytes, int64_t rows, const std::string& digest) {
  file_.write(bytes);
  rows_ += rows;
  digest_ = digest;
  if (std::chrono::steady_clock::now() - last_checkpoint_ >= kCheckpointInterval) save_state();
}

void EmbeddingOutput::checkpoint() {
  const std::lock_guard lock(mutex_);
  save_state();
}

bool EmbeddingOutput::keep_finished() {
  const std::lock_guard lock(mutex_);
  if (is_committed_) return false;
  save_state();
  return true;
}

void EmbeddingOutput::save_state() {
  file_.sync();
  const json state = {{"kind", kKind},       {"settings", settings_.settings}, {"inputs", first_inputs_},
                      {"rows", rows_},       {"bytes", file_.size()},          {"digest", digest_},
                      {"ids", name_of(ids_)}};
  io::write_file(state_path(), state.dump(2) + "\n");
  last_checkpoint_ = std::chrono::steady_clock::now();
}

void EmbeddingOutput::write_parquet() {
  const io::MappedFile mapped(partial_path());
  RowBytes rows(mapped.bytes(), settings_.dimensions);
  data::write_parquet_vectors(settings_.path, rows_, settings_.dimensions, ids_, [&rows] { return rows.next(); });
}

void EmbeddingOutput::write_quantized() {
  const io::MappedFile mapped(partial_path());
  const auto dimensions = static_cast<size_t>(settings_.dimensions);
  const std::span values(reinterpret_cast<const float*>(mapped.bytes().data()),
                         static_cast<size_t>(rows_) * dimensions);
  const auto row = [&](int64_t i) { return values.subspan(static_cast<size_t>(i) * dimensions, dimensions); };
  engine::ElementRanges ranges = settings_.ranges;
  if (engine::needs_ranges(settings_.quantization) && ranges.empty()) {
    if (rows_ == 1) {
      fail(kOutputWhere, "the ranges of int8 and uint8 need at least two vectors, got 1 (--ranges gives them)");
    }
    for (int64_t i = 0; i < rows_; ++i) ranges.add(row(i));
  }
  const engine::Quantizer quantizer(settings_.quantization, ranges);
  const int64_t size = engine::quantized_size(settings_.quantization, settings_.dimensions);
  const io::DType dtype = engine::is_signed(settings_.quantization) ? io::DType::kI8 : io::DType::kU8;
  io::AtomicFile file(settings_.path);
  file.write(io::npy_header(settings_.path, dtype, {rows_, size}));
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  for (int64_t i = 0; i < rows_; ++i) {
    quantizer(row(i), bytes.data());
    file.write(std::span<const std::byte>(bytes));
  }
  file.commit();
}

void EmbeddingOutput::commit() {
  const std::lock_guard lock(mutex_);
  save_state();
  if (format_ == VectorFormat::kParquet || is_quantized()) {
    is_quantized() ? write_quantized() : write_parquet();
    file_.remove();
  } else {
    if (format_ == VectorFormat::kNpy) {
      const std::string header = io::npy_header(settings_.path, settings_.dtype, {rows_, settings_.dimensions});
      file_.write_at(0, std::as_bytes(std::span(header)));
    }
    file_.commit();
  }
  fs::remove(state_path());
  is_committed_ = true;
}

}  // namespace rf::cli
