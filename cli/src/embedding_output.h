// The file of roformer embed: .npy, JSON lines or Parquet, written in order to `path`.part, which a later run of the
// same command continues. `path`.part.json stores the progress and the settings of the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/data/vectors.h"
#include "rf/engine/quantization.h"
#include "rf/io/dtype.h"
#include "rf/io/files.h"

namespace rf::cli {

enum class VectorFormat { kNpy, kJsonLines, kParquet };
VectorFormat vector_format_of(const std::string& path);  // by its extension; throws Error for unknown ones

bool holds_ids(VectorFormat format);

struct OutputSettings {
  std::string path;
  io::DType dtype = io::DType::kF32;  // or kF16, in .npy
  // In .npy; the part stores float32. ranges: for int8 and uint8; empty: computed from all vectors.
  engine::Quantization quantization = engine::Quantization::kNone;
  engine::ElementRanges ranges{};
  int64_t dimensions = 0;
  // Settings that determine the vectors, by name: an output with other values is not continued.
  nlohmann::json settings;
  nlohmann::json inputs;                                    // files with size and modification time, for messages
  enum class Restart { kNo, kYes } restart = Restart::kNo;  // kYes: discards the part of an earlier run
};

class EmbeddingOutput {
 public:
  // Throws Error for a part with other settings, a part that roformer embed did not write, and while another process
  // writes this output.
  explicit EmbeddingOutput(OutputSettings settings);

  int64_t rows() const { return rows_; }  // number of written rows, including earlier runs
  const std::string& digest() const { return digest_; }
  const std::string& partial_path() const { return file_.partial_path(); }
  // Output files, which are not inputs.
  static std::vector<std::string> paths_of(const std::string& path);
  // The inputs that have changed since the part was started, for a message.
  std::string changed_inputs() const;

  // Appends rows to .npy or .parquet, with the ids of their texts as JSON text, possibly empty. digest: of all texts up
  // to these.
  void write(std::span<const data::VectorRow> rows, const std::string& digest);
  // Appends lines to .jsonl.
  void write_lines(std::string_view lines, int64_t count, const std::string& digest);
  void checkpoint();  // makes written rows survive a crash
  void commit();
  // Called from another thread when the process is about to end: saves the written rows and returns true, or false
  // after commit().
  bool keep_finished();

 private:
  std::string state_path() const { return file_.partial_path() + ".json"; }
  void begin();
  void resume(const nlohmann::json& state);
  void append(std::string_view bytes, int64_t rows, const std::string& digest);
  void write_parquet();
  void write_quantized();
  bool is_quantized() const { return settings_.quantization != engine::Quantization::kNone; }

  void save_state();

  std::mutex mutex_;  // held while rows are written and committed
  bool is_committed_ = false;
  OutputSettings settings_;
  VectorFormat format_;
  io::ResumableFile file_;
  int64_t rows_ = 0;
  std::string digest_;
  data::IdColumn ids_ = data::IdColumn::kNone;  // of all rows
  nlohmann::json first_inputs_;
  std::string bytes_;  // of the rows being written
  std::chrono::steady_clock::time_point last_checkpoint_{};
};

}  // namespace rf::cli
