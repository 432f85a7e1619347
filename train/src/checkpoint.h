// Checkpoints of a run: checkpoint-<step>/ in the run directory (rf/model/run_checkpoints.h), complete or absent.
//
// A checkpoint is written (checkpoint_writer.h) as .checkpoint-<step>.tmp/, every file synced, then the directory is
// renamed and its parent synced; a checkpoint that is removed is renamed to such a name first. So a process killed at
// any moment leaves only complete checkpoints and temporary directories, and a full disk does not harm older
// checkpoints. A checkpoint is a model directory (config.json, model.safetensors, vocab.txt, tokenizer_config.json)
// with optimizer.safetensors (moments, float32) and state.json: a TrainState for pretraining, the state of
// finetune_run.cpp for fine-tuning.
//
// A job of W > 1 ranks writes the moments in W files, optimizer-00001-of-0000W.safetensors and so on, each by one rank:
// numbers i to i + n - 1 of a moment are the tensor "<moment>@<i>" [n]. Any number of ranks can read them. The first
// rank writes the rest, and publishes the checkpoint when every file is on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "optimizer.h"
#include "rf/data/batcher.h"
#include "rf/io/strict_object.h"
#include "rf/train/pretrain.h"

namespace rf::train {

// Sums since the last line of the metrics.
struct Interval {
  double loss_sum = 0;  // nats
  int64_t predicted_tokens = 0, real_tokens = 0;
  double pair_loss_sum = 0;  // nats
  int64_t correct_pairs = 0, pairs = 0;
};

// Everything that the rest of a run depends on, except weights and moments.
struct TrainState {
  int64_t step = 0;           // optimizer steps done
  int64_t stage = 0;          // of the last step done
  int64_t micro_batches = 0;  // forward passes done, which key the dropout draws
  int64_t updates = 0;        // of the optimizer: steps with at least one token to predict
  data::BatchCursor cursor;
  Interval interval;
  double train_loss = 0;  // of the last line of the metrics
  EvaluationReport evaluation;
  nlohmann::json run;   // the run file
  nlohmann::json data;  // identity of the data directory
  nlohmann::json platform =
      nlohmann::json::object();  // threads, versions, instruction sets: the conditions of bit-identity
};

// Whether an entry of a run directory is a temporary one that a killed process left behind.
bool is_temporary(const std::string& name);
// Deletes such entries.
void remove_temporaries(const std::string& run_dir);
// The files of a tokenizer, in memory: a run can write them also after their directory was deleted.
class TokenizerFiles {
 public:
  // Reads the files of text::kTokenizerFiles that exist in the directory. Throws Error if no file contains the
  // vocabulary.
  explicit TokenizerFiles(const std::string& dir);
  void write(const std::string& dir) const;

 private:
  std::vector<std::pair<std::string, std::string>> files_;  // name and content
};

// The key of state.json that marks a checkpoint caused by a signal.
inline constexpr const char* kInterrupted = "interrupted";
// The path of a checkpoint while it is written or removed.
std::string unfinished_path(const std::string& run_dir, int64_t step);
// The file of a rank's moments in a checkpoint of `ranks` ranks.
std::string moments_file(const std::string& checkpoint, int64_t rank, int64_t ranks);
// Writes state.json. `state`: an object with "step".
void save_state(const std::string& checkpoint, nlohmann::json state);
// Removes all but the newest `keep`, and checkpoints with kInterrupted unless one is the newest. So a run ends with the
// same checkpoints as without signals.
void drop_checkpoints(const std::string& run_dir, int64_t keep);
// state.json, read by `parse`. Errors name the checkpoint and the key, and tell the user to remove its directory to
// continue from the previous one.
void load_state(const std::string& checkpoint, const std::function<void(io::StrictObject&)>& parse);
nlohmann::json to_json(const TrainState& state);
TrainState train_state(io::StrictObject& json);
// Reads the moments that this rank needs, whatever the number of ranks that wrote them.
void load_moments(const std::string& checkpoint, AdamW& optimizer);

}  // namespace rf::train
