// The steps of a pretraining run, its metrics, evaluations and checkpoints (pretrain_run.h). The arithmetic of a step
// is train_step.h's.
#include "rf/train/pretrain.h"

#include <ATen/record_function.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pretrain_run.h"
#include "rf/io/files.h"
#include "rf/train/job.h"
#include "seconds.h"

namespace rf::train {

namespace {

int64_t peak_rss_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

// How a stage's micro-batches are made.
data::BatchOptions PretrainRun::stage_batches(int64_t stage) const {
  const Stage& s = config_.stages[static_cast<size_t>(stage)];
  return batch_options(config_, s.max_length, s.batch / s.accumulate);
}

// A stage may cut the documents into rows of another length, so each stage starts a new epoch.
void PretrainRun::enter_stage(int64_t stage) {
  if (state_.step > 0 && stage != state_.stage) state_.cursor = {state_.cursor.epoch + 1, 0};
  state_.stage = stage;
  if (batcher_stage_ == stage) return;
  batcher_ = std::make_unique<data::Batcher>(train_, vocabulary_->special(), stage_batches(stage));
  batcher_stage_ = stage;
}

// The batches of this rank; the cursor moves past the batches of all ranks.
std::vector<LanguageBatch> PretrainRun::own_batches(int64_t micro_batches) {
  RECORD_USER_SCOPE("data");
  std::vector<LanguageBatch> batches;
  const auto is_own = [this](int64_t i) { return ranks_.has(i); };
  for (const data::Batch& batch : batcher_->next_step(state_.cursor, micro_batches, is_own)) {
    batches.push_back(to_tensors(batch));
  }
  return batches;
}

void PretrainRun::one_step() {
  const double start = now_seconds();
  const int64_t step = state_.step + 1;
  const auto stage = std::lower_bound(stage_ends_.begin(), stage_ends_.end(), step) - stage_ends_.begin();
  enter_stage(stage);
  const int64_t micro_batches = config_.stages[static_cast<size_t>(stage)].accumulate;
  const std::vector<LanguageBatch> batches = own_batches(micro_batches);
  last_rate_ = learning_rate(config_.schedule, step, total_steps_);
  last_step_ = train_step(*model_, *optimizer_, batches,
                          {config_.precision, last_rate_, step, config_.seed, state_.micro_batches, micro_batches},
                          {ranks_, *gradients_});
  state_.step = step;
  state_.micro_batches += micro_batches;
  state_.updates = optimizer_->updates();
  state_.interval.loss_sum += last_step_.loss_sum;
  state_.interval.predicted_tokens += last_step_.predicted_tokens;
  state_.interval.real_tokens += last_step_.real_tokens;
  state_.interval.pair_loss_sum += last_step_.pair_loss_sum;
  state_.interval.correct_pairs += last_step_.correct_pairs;
  state_.interval.pairs += last_step_.pairs;
  const double seconds = now_seconds() - start;
  interval_seconds_ += seconds;
  run_seconds_ += seconds;
  timed_tokens_ += last_step_.real_tokens;
  run_tokens_ += last_step_.real_tokens;
  compute_seconds_ += last_step_.compute_seconds;
}

double PretrainRun::interval_loss() const {
  return state_.interval.loss_sum / static_cast<double>(std::max<int64_t>(state_.interval.predicted_tokens, 1));
}

void PretrainRun::log_interval() {
  state_.train_loss = interval_loss();
  nlohmann::json more = job_times();
  if (const Interval& sums = state_.interval; sums.pairs > 0) {
    const auto pairs = static_cast<double>(sums.pairs);
    more["pair_loss"] = sums.pair_loss_sum / pairs;
    more["pair_accuracy"] = static_cast<double>(sums.correct_pairs) / pairs;
  }
  append({{"type", "train"},
          {"step", state_.step},
          {"stage", state_.stage},
          {"loss", state_.train_loss},
          {"learning_rate", last_rate_},
          {"gradient_norm", last_step_.gradient_norm},
          {"tokens", state_.interval.real_tokens},
          {"predicted_tokens", state_.interval.predicted_tokens},
          {"seconds", interval_seconds_},
          {"tokens_per_second", static_cast<double>(timed_tokens_) / interval_seconds_}},
         more);
  state_.interval = {};
  interval_seconds_ = compute_seconds_ = 0;
  timed_tokens_ = 0;
}

// Times of the interval over all ranks; empty for one rank.
nlohmann::json PretrainRun::job_times() {
  const CommunicationTime own = gradients_->take_time();
  if (ranks_.size() == 1) return nlohmann::json::object();
  const std::vector<std::vector<double>> all = ranks_.gather(std::array{compute_seconds_, own.busy, own.exposed});
  double busy = 0, exposed = 0;
  for (const std::vector<double>& each : all) {
    busy += each[1] / static_cast<double>(all.size());
    exposed += each[2] / static_cast<double>(all.size());
  }
  const auto slowest = std::max_element(all.begin(), all.end());
  return {{"processes", ranks_.size()},
          {"communication_seconds", busy},
          {"exposed_seconds", exposed},
          {"slowest_rank", slowest - all.begin()},
          {"slowest_seconds", slowest->front()}};
}

void PretrainRun::append(nlohmann::json line, const nlohmann::json& more) {
  line.update(more);
  if (metrics_) metrics_->append(line);
}

void PretrainRun::evaluate_now() {
  if (held_out_->empty()) return;
  RECORD_USER_SCOPE("evaluation");
  const double start = now_seconds();
  state_.evaluation = held_out_->measure(*model_, stage_batches(state_.stage), config_.precision,
                                         config_.evaluate_batches, progress_, ranks_);
  append(to_json(state_.evaluation),
         {{"type", "evaluation"}, {"step", state_.step}, {"stage", state_.stage}, {"seconds", now_seconds() - start}});
  const double loss = state_.interval.predicted_tokens > 0 ? interval_loss() : state_.train_loss;
  std::string shown = fmt::format("{}  held-out loss {:.3f}", progress_line(loss), state_.evaluation.loss);
  if (state_.evaluation.pairs > 0) shown += fmt::format("  pair accuracy {:.3f}", state_.evaluation.pair_accuracy);
  progress_.message(shown);
}

// Every stage is measured in batches like the first stage's, so that the same documents are measured throughout.
void PretrainRun::evaluate_lengths() {
  if (held_out_->empty()) return;
  RECORD_USER_SCOPE("evaluation");
  for (const int64_t length : config_.evaluate_lengths) {
    const double start = now_seconds();
    const auto noted = [this](const std::string& text) { note(text); };
    const auto evaluation = held_out_->measure_length(*model_, config_, length, batch_tokens(config_.stages.front()),
                                                      progress_, noted, ranks_);
    nlohmann::json line = to_json(evaluation.value_or(EvaluationReport{}));
    if (!evaluation) line = {{"loss", nullptr}, {"accuracy", nullptr}};
    append(line, {{"type", "length"},
                  {"step", state_.step},
                  {"stage", state_.stage},
                  {"length", length},
                  {"seconds", now_seconds() - start}});
  }
}

void PretrainRun::checkpoint_now(CheckpointCause cause) {
  RECORD_USER_SCOPE("checkpoint");
  checkpoints_->begin(*model_, *optimizer_, to_json(state_), cause);
}

void PretrainRun::write_profile() {
  std::string trace;
  ranks_.together([&] { trace = profile_->write(); });
  note(fmt::format(
      "profile: {}, for ui.perfetto.dev, chrome://tracing or TensorBoard, and a table in the .txt beside it", trace));
}

// Shows progress: step, loss, speed of the steps, and the time that is left, including evaluations and checkpoints.
std::string PretrainRun::progress_line(double loss) const {
  double steps_left_cost = 0;  // in units of the tokens that a step of its stage can hold
  int64_t begin = state_.step;
  for (size_t i = 0; i < config_.stages.size(); ++i) {
    const Stage& stage = config_.stages[i];
    if (stage_ends_[i] <= begin) continue;
    steps_left_cost += static_cast<double>((stage_ends_[i] - begin) * stage.batch * stage.max_length);
    begin = stage_ends_[i];
  }
  const double tokens = static_cast<double>(run_tokens_), left = steps_left_cost / tokens * (now_seconds() - start_);
  return fmt::format("step {}/{}  loss {:.3f}  lr {:.2e}  {:.0f} tokens/s  {} left", state_.step, total_steps_, loss,
                     last_rate_, tokens / run_seconds_, io::duration_text(left));
}

void PretrainRun::finish() {
  ranks_.together([&] {
    if (!ranks_.is_first()) return;
    nn::save_model(*model_, options_.output_dir);
    tokenizer_->write(options_.output_dir);
  });
}

// A step, followed by its logging, evaluation and checkpoint.
void PretrainRun::go_one_step() {
  const std::string name = fmt::format("ProfilerStep#{}", state_.step + 1);
  RECORD_USER_SCOPE(name);
  one_step();
  const int64_t step = state_.step;
  const bool stage_end = step == stage_ends_[static_cast<size_t>(state_.stage)];
  if (stage_end || step % config_.log_every_steps == 0) log_interval();
  const int64_t every = config_.evaluate_every_steps;
  if (stage_end || (every > 0 && step % every == 0)) evaluate_now();
  if (stage_end) evaluate_lengths();
  if (step == total_steps_ || step % config_.checkpoint_every_steps == 0) checkpoint_now();
  const double predicted = static_cast<double>(std::max<int64_t>(last_step_.predicted_tokens, 1));
  progress_.update(progress_line(last_step_.loss_sum / predicted));
}

// Before a step: publishes a checkpoint that all ranks have written, and returns the signal that any has received, or
// 0.
int64_t PretrainRun::agree(const InterruptScope& interrupt) {
  const std::array<int64_t, 2> own = {interrupt.received(), checkpoints_->is_done() ? 1 : 0};
  int64_t signal = 0, all_are_done = 1;
  for (const std::vector<int64_t>& of_rank : ranks_.gather(own)) {
    signal = std::max(signal, of_rank[0]);
    all_are_done = std::min(all_are_done, of_rank[1]);
  }
  if (all_are_done > 0) checkpoints_->go_on();
  return signal;
}

// Runs steps to the end or to a signal, which it returns, and then writes a checkpoint.
int64_t PretrainRun::go_through_steps(const InterruptScope& interrupt) {
  int64_t signal = 0;
  while (state_.step < total_steps_ && (signal = agree(interrupt)) == 0) {
    profile_->begin(state_.step + 1);
    go_one_step();
    if (profile_->is_running() && state_.step == profile_->last()) write_profile();
  }
  if (profile_->is_running()) write_profile();
  if (state_.step < total_steps_) checkpoint_now(CheckpointCause::kSignal);
  checkpoints_->finish();
  return signal;
}

PretrainReport PretrainRun::go() {
  const InterruptScope interrupt(ranks_.size() > 1 ? InterruptScope::Process::kOfJob : InterruptScope::Process::kAlone);
  note(plot_hint(options_.output_dir));
  if (profile_->last() > 0 && profile_->last() <= state_.step) {
    note(fmt::format("no profile: step {} is done, and the run goes on after step {}", profile_->last(), state_.step));
  }
  start_ = now_seconds();
  int64_t signal = 0;
  try {
    signal = go_through_steps(interrupt);
  } catch (const FailedOnAll&) {
    try {
      checkpoints_->finish();          // one that was begun before is kept
    } catch (const std::exception&) {  // the first error is the one to report
    }
    throw;
  }
  if (state_.step == total_steps_) {
    finish();
    signal = ranks_.largest_at_end(interrupt.received());
  }
  progress_.finish();
  PretrainReport report;
  report.steps = state_.step;
  report.train_loss = state_.train_loss;
  report.tokens_per_second = run_seconds_ > 0 ? static_cast<double>(run_tokens_) / run_seconds_ : 0;
  report.peak_rss_bytes = ranks_.largest(peak_rss_bytes());
  report.evaluation = state_.evaluation;
  report.signal = static_cast<int>(signal);
  report.is_complete = state_.step == total_steps_;
  report.is_first_rank = ranks_.is_first();
  return report;
}

PretrainReport pretrain(const PretrainOptions& options, io::Progress& progress) {
  return PretrainRun(options, progress).go();
}

PretrainReport pretrain_part(const std::string& directory, const nlohmann::json& run, PretrainOptions options,
                             io::Progress& progress) {
  std::filesystem::create_directories(directory);
  options.config_path = directory + ".run.json";
  options.output_dir = directory;
  options.resume = true;
  io::write_file(options.config_path, run.dump(2) + "\n");
  return pretrain(options, progress);
}

}  // namespace rf::train