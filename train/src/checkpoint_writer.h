// Writes checkpoints while training continues; checkpoint.h describes their files.
//
// Training pauses while each rank copies its data: the first rank the weights and its part of the moments, the others
// their parts. Then a thread of each rank writes the copies and syncs the files. This thread avoids collective calls,
// because ranks could interleave the calls of two threads in different orders. Instead, all ranks call go_on() once
// is_done() holds on every rank, which they learn in a collective call that every step makes anyway. The first go_on()
// publishes the checkpoint, in a thread of the first rank; the second confirms that it is published.
//
//   idle --begin--> writing --go_on--> publishing --go_on--> idle
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint.h"
#include "rf/nn/model.h"

namespace rf::train {

// The settings of a run's checkpoints. Referenced objects must outlive the writer.
struct CheckpointPlan {
  std::string run_dir;
  const TokenizerFiles& tokenizer;
  int64_t keep = 1;  // number of the newest checkpoints that are kept
  const Ranks& ranks = Ranks::alone();
  // Called by the writing thread of the first rank: syncs what must not be older than the checkpoint. May be empty.
  std::function<void()> sync{};
};

// kSignal: it is kept until the next one.
enum class CheckpointCause { kRunFile, kSignal };

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointPlan plan);
  // Waits for the thread. A single rank publishes a checkpoint it has begun, even if an error ends the run. Several
  // ranks cannot agree here, so their checkpoint is removed unless finish() was called.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // All ranks call these three functions together. They throw Error if a rank could not write a file. begin() finishes
  // the previous checkpoint, copies, and starts to write. `state`: an object with "step".
  template <typename Model>  // nn::Model or nn::TranslationModel
  void begin(const Model& model, const AdamW& optimizer, nlohmann::json state,
             CheckpointCause cause = CheckpointCause::kRunFile) {
    if (cause == CheckpointCause::kSignal) state[kInterrupted] = true;
    begin_with([&model](nn::ModelSnapshot& snapshot) { snapshot.take(model); }, optimizer, std::move(state));
  }
  void go_on();   // when is_done() on all ranks; otherwise it waits
  void finish();  // waits until the current checkpoint is published

  // Whether this rank waits for go_on().
  bool is_done() const;

 private:
  enum class Phase { kIdle, kWriting, kPublishing };
  class Directory;
  using TakeModel = std::function<void(nn::ModelSnapshot&)>;
  void begin_with(const TakeModel& take, const AdamW& optimizer, nlohmann::json state);
  void copy(const TakeModel& take, const AdamW& optimizer);
  void write(const std::string& dir) const;
  void publish();

  CheckpointPlan plan_;
  Phase phase_ = Phase::kIdle;             // the same on all ranks
  std::string path_;                       // of the checkpoint
  std::unique_ptr<Directory> unfinished_;  // of the first rank
  nn::ModelSnapshot model_;                // of the first rank
  std::vector<MomentPart> moments_;
  nlohmann::json state_;
  std::future<void> work_;  // of the phase, on this rank
};

}  // namespace rf::train
