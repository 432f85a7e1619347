// The file of roformer embed (embedding_output.h).
#include "embedding_output.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>

#include "rf/data/vectors.h"
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

// How the settings differ: "pooling mean, not cls; dtype ...".
std::string differences(const json& earlier, const json& now) {
  std::string text;
  for (const auto& [name, value] : now.items()) {
    const json other = earlier.contains(name) ? earlier.at(name) : json();
    if (other == value) continue;
    text += fmt::format("{}{} {} (now {})", text.empty() ? "" : ", ", name, io::escaped(other.dump(), 80),
                        io::escaped(value.dump(), 80));
  }
  return text;
}

json read_state(const std::string& path) {
  const json state = io::read_json(path);
  const bool is_ours = state.is_object() && state.value("kind", json()) == kKind && state.contains("settings") &&
                       state.at("settings").is_object() && state.contains("inputs") && state.at("inputs").is_object() &&
                       state.value("rows", json()).is_number_unsigned() &&
                       state.value("bytes", json()).is_number_unsigned() && state.value("digest", json()).is_string();
  if (!is_ours) fail(path, "must be the state of {}, got other JSON", kKind);
  return state;
}

void append_halves(const float* vectors, size_t count, std::string& bytes) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = io::half_of_float(vectors[i]);
    bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
  }
}

}  // namespace

VectorFormat vector_format_of(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".npy") return VectorFormat::kNpy;
  if (extension == ".jsonl") return VectorFormat::kJsonLines;
  if (extension == ".parquet") return VectorFormat::kParquet;
  fail(kOutputWhere, "the file must be named .npy, .jsonl or .parquet, got {}", path);
}

std::string vector_line(int64_t index, const float* vector, int64_t dimensions) {
  std::string line = fmt::format("{{\"index\":{},\"embedding\":[", index);
  for (int64_t i = 0; i < dimensions; ++i) {
    if (i > 0) line += ',';
    if (std::isfinite(vector[i])) {
      fmt::format_to(std::back_inserter(line), "{}", vector[i]);
    } else {
      line += "null";  // JSON has no other numbers
    }
  }
  return line += "]}";
}

EmbeddingOutput::EmbeddingOutput(OutputSettings settings)
    : settings_(std::move(settings)), format_(vector_format_of(settings_.path)), file_(settings_.path) {
  if (format_ == VectorFormat::kParquet) data::check_parquet_output();
  const bool has_state = fs::exists(state_path());
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
  save_state();           // before the part has bytes that no state explains
  last_checkpoint_ = {};  // the first rows get one
  if (format_ == VectorFormat::kNpy)
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

void EmbeddingOutput::write(int64_t rows, const float* vectors, const std::string& digest) {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<size_t>(rows * settings_.dimensions);
  bytes_.clear();
  if (format_ == VectorFormat::kJsonLines) {
    for (int64_t i = 0; i < rows; ++i) {
      bytes_ += vector_line(rows_ + i, vectors + i * settings_.dimensions, settings_.dimensions) + '\n';
    }
    file_.write(bytes_);
  } else if (settings_.dtype == io::DType::kF16) {
    append_halves(vectors, count, bytes_);
    file_.write(bytes_);
  } else {
    file_.write(std::as_bytes(std::span(vectors, count)));
  }
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
  const json state = {{"kind", kKind}, {"settings", settings_.settings}, {"inputs", first_inputs_},
                      {"rows", rows_}, {"bytes", file_.size()},          {"digest", digest_}};
  io::write_file(state_path(), state.dump(2) + "\n");
  last_checkpoint_ = std::chrono::steady_clock::now();
}

void EmbeddingOutput::commit() {
  const std::lock_guard lock(mutex_);
  save_state();
  if (format_ == VectorFormat::kParquet) {
    const io::MappedFile mapped(partial_path());
    const auto* const vectors = reinterpret_cast<const float*>(mapped.bytes().data());
    data::write_parquet_vectors(settings_.path, rows_, settings_.dimensions,
                                [&](int64_t first, int64_t) { return vectors + first * settings_.dimensions; });
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
