// The file of roformer embed: .npy, JSON lines or Parquet, written in order under `path`.part, which a later run of the
// same command continues. `path`.part.json says how far it is and with which settings it was begun.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "rf/data/vectors.h"
#include "rf/io/dtype.h"
#include "rf/io/resumable_file.h"

namespace rf::cli {

enum class VectorFormat { kNpy, kJsonLines, kParquet };
VectorFormat vector_format_of(const std::string& path);  // by its extension; throws Error for another

bool holds_ids(VectorFormat format);

// {"index":0,"id":7,"embedding":[...]}, with the shortest decimal numbers that are read as the same floats. id: JSON
// text; empty: the key is left out.
std::string vector_line(int64_t index, std::string_view id, const float* vector, int64_t dimensions);

struct OutputSettings {
  std::string path;
  io::DType dtype = io::DType::kF32;  // or kF16, in .npy
  int64_t dimensions = 0;
  // What the vectors depend on, by name: an output that was begun with other values is not continued.
  nlohmann::json settings;
  nlohmann::json inputs;                                    // files with size and time of change, for messages
  enum class Restart { kNo, kYes } restart = Restart::kNo;  // kYes: an earlier run's part is dropped
};

class EmbeddingOutput {
 public:
  // Throws Error for a part that was begun with other settings, one that roformer embed did not write, and while
  // another process writes this output.
  explicit EmbeddingOutput(OutputSettings settings);

  int64_t rows() const { return rows_; }  // that are written, also by earlier runs
  const std::string& digest() const { return digest_; }
  const std::string& partial_path() const { return file_.partial_path(); }
  // Files that are written, which are no input.
  static std::vector<std::string> paths_of(const std::string& path);
  // The inputs that have changed since the part was begun, for a message.
  std::string changed_inputs() const;

  // Further rows, with the ids of their texts as JSON text, which may be empty. digest: of all texts up to these.
  void write(const std::vector<std::string>& ids, const float* vectors, const std::string& digest);
  void checkpoint();  // what is written so far survives whatever happens
  void commit();
  // For another thread, when the process is about to end: keeps what is written and returns true, or false after
  // commit().
  bool keep_finished();

 private:
  std::string state_path() const { return file_.partial_path() + ".json"; }
  void begin();
  void resume(const nlohmann::json& state);
  void write_parquet();

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
  std::string bytes_;  // of the rows that are being written
  std::chrono::steady_clock::time_point last_checkpoint_{};
};

}  // namespace rf::cli
