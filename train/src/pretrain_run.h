// The class behind pretrain(): a run from its options to the finished model. pretrain_start.cpp opens or resumes it,
// pretrain.cpp steps through the stages.
//
// Order within a step: update, metrics line, evaluation, checkpoint. The checkpoint is written during later steps. The
// metrics are synced before it is published, so they hold every line up to the newest checkpoint, and later lines are
// removed on resume.
//
// In a job of several ranks (ranks.h) all run this code. The first rank handles the run directory, the metrics and the
// display; the others read the run file and the newest checkpoint, and write their part of each checkpoint.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint_writer.h"
#include "gradient_sum.h"
#include "held_out.h"
#include "interrupt.h"
#include "metrics_log.h"
#include "ranks.h"
#include "rf/text/vocabulary.h"
#include "rf/train/pretrain.h"
#include "rf/train/run_directory.h"
#include "step_profile.h"
#include "train_step.h"

namespace rf::train {

class PretrainRun {
 public:
  PretrainRun(const PretrainOptions& options, io::Progress& progress);
  PretrainReport go();

 private:
  void start(const std::string& checkpoint);
  void read_run_file();
  void open_data();
  void open_model();
  void make_optimizer();
  void check_longest_stage();
  void resume_from(const std::string& checkpoint);
  data::BatchOptions stage_batches(int64_t stage) const;
  void enter_stage(int64_t stage);
  std::vector<LanguageBatch> own_batches(int64_t micro_batches);
  void one_step();
  double interval_loss() const;  // mean, so far
  nlohmann::json job_times();
  void append(nlohmann::json line, const nlohmann::json& more);  // to the metrics
  void log_interval();
  void evaluate_now();
  void evaluate_lengths();
  void checkpoint_now(CheckpointCause cause = CheckpointCause::kRunFile);
  void write_profile();
  void go_one_step();
  int64_t agree(const InterruptScope& interrupt);
  int64_t go_through_steps(const InterruptScope& interrupt);
  std::string progress_line(double loss) const;
  void finish();
  void note(const std::string& text) const {
    if (options_.note && ranks_.is_first()) options_.note(text);
  }
  std::string file(const std::string& name) const { return options_.output_dir + "/" + name; }

  const PretrainOptions& options_;
  const Ranks ranks_;
  io::Progress silent_;
  io::Progress& progress_;
  std::optional<RunDirectory> directory_;  // of the first rank
  RunConfig config_;
  int64_t total_steps_ = 0;
  std::vector<int64_t> stage_ends_;  // last step of each stage
  std::shared_ptr<const data::Split> train_;
  std::optional<HeldOut> held_out_;
  std::optional<TokenizerFiles> tokenizer_;
  std::optional<text::Vocabulary> vocabulary_;
  std::shared_ptr<nn::Model> model_;
  std::optional<AdamW> optimizer_;
  std::optional<GradientSum> gradients_;
  TrainState state_;
  std::optional<MetricsLog> metrics_;  // of the first rank
  std::optional<CheckpointWriter> checkpoints_;
  std::optional<StepProfile> profile_;
  std::unique_ptr<data::Batcher> batcher_;
  int64_t batcher_stage_ = -1;
  StepResult last_step_;
  double last_rate_ = 0;
  double start_ = 0;                               // of the steps, by now_seconds()
  double interval_seconds_ = 0, run_seconds_ = 0;  // of steps alone
  int64_t timed_tokens_ = 0, run_tokens_ = 0;      // of the interval and of the run, since this start
  double compute_seconds_ = 0;                     // of the passes of the interval, by this rank
};

}  // namespace rf::train
