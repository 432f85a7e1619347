// A pretraining run, from its options to the finished model: its run file, data, model and optimizer, new or from a
// checkpoint; its steps, metrics, evaluations and checkpoints. The arithmetic of a step is train_step.h's.
//
// Order within a step: update, metrics line, evaluation, checkpoint. The checkpoint is written during later steps. The
// metrics are synced before it is published, so they hold every line up to the newest checkpoint, and later lines are
// removed on resume.
//
// In a job of several ranks (ranks.h) all run this code. The first rank handles the run directory, the metrics and the
// display; the others read the run file and the newest checkpoint, and write their part of each checkpoint.
#include "rf/train/pretrain.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint_writer.h"
#include "device.h"
#include "gradient_sum.h"
#include "held_out.h"
#include "interrupt.h"
#include "job_start.h"
#include "metrics_log.h"
#include "platform.h"
#include "ranks.h"
#include "rf/data/identity.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/foreign_models.h"
#include "rf/model/run_checkpoints.h"
#include "rf/nn/seed_scope.h"
#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary.h"
#include "rf/train/job.h"
#include "rf/train/run_directory.h"
#include "run_file.h"
#include "seconds.h"
#include "step_profile.h"
#include "train_step.h"

namespace rf::train {

namespace {

int64_t peak_rss_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Checks that a run may continue with this run file: only keys that control checkpoints, sharding and the overlap of
// gradient sums may differ.
void check_same_run(nlohmann::json before, nlohmann::json now) {
  for (const char* key : {"checkpoint_every_steps", "keep_checkpoints", "sharding", "reduce_overlap"}) {
    before.erase(key);
    now.erase(key);
  }
  const std::string difference = data::first_difference(before, now);
  if (difference.empty()) return;
  const bool other_stages = before.value("stages", nlohmann::json()) != now.value("stages", nlohmann::json());
  fail("resume", "the run file must be the run's own, got {}{}", difference,
       other_stages ? "; to train a finished model further, name its directory as init_from of another run" : "");
}

// The tokens of a pair have the types 0 and 1. where: "model" or "init_from".
void check_types(const ModelConfig& config, data::Pairs pairs, const char* where) {
  if (pairs == data::Pairs::kNone || config.type_vocab_size >= 2) return;
  fail("run file", "{}.type_vocab_size must be at least 2 with pairs, got {}", where, config.type_vocab_size);
}

class PretrainRun {
 public:
  PretrainRun(const PretrainOptions& options, io::Progress& progress)
      : options_(options),
        ranks_(options.process_group),
        progress_(ranks_.is_first() ? progress : silent_),
        device_(open_device("pretrain", options.device)) {
    std::string checkpoint;
    ranks_.together([&] {
      if (!ranks_.is_first()) return;
      directory_.emplace(options.output_dir, options.resume ? RunDirectory::Use::kResume : RunDirectory::Use::kFresh);
      checkpoint = newest_checkpoint(options.output_dir).value_or("");
    });
    const std::string profile_steps = ranks_.gather(options.profile_steps).front();
    ranks_.together([&] {
      read_run_file();
      require_work_for_all(ranks_, config_);
      profile_.emplace(profile_steps, total_steps_, file("profile-"), ranks_);
      open_data();
    });
    state_.run = to_json(config_);
    state_.platform = fresh_platform(device_.str());
    ranks_.together([&] { state_.data = data::identity(options_.data_dir); });
    require_same_job(ranks_, state_.run, state_.data, state_.platform);
    checkpoint = ranks_.gather(checkpoint).front();
    ranks_.together([&] { start(checkpoint); });
    require_shared(ranks_, options_.output_dir);
    require_same_weights(ranks_, *model_);
    model_->train();
    checkpoints_.emplace(CheckpointPlan{options_.output_dir, *tokenizer_, config_.keep_checkpoints, ranks_,
                                        [this] { metrics_->sync(); }});
  }

  PretrainReport go() {
    const InterruptScope interrupt(ranks_.size() > 1 ? InterruptScope::Process::kOfJob
                                                     : InterruptScope::Process::kAlone);
    note(plot_hint(options_.output_dir));
    if (profile_->last() > 0 && profile_->last() <= state_.step) {
      note(
          fmt::format("no profile: step {} is done, and the run goes on after step {}", profile_->last(), state_.step));
    }
    start_ = now_seconds();
    int64_t signal = 0;
    try {
      signal = go_through_steps(interrupt);
    } catch (const FailedOnAll&) {
      finish_checkpoint();
      throw;
    } catch (const c10::AcceleratorError&) {
      finish_checkpoint();
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

 private:
  // One that was begun before an error is kept; the error is the one to report.
  void finish_checkpoint() {
    try {
      checkpoints_->finish();
    } catch (const std::exception&) {
    }
  }

  void start(const std::string& checkpoint) {
    if (!checkpoint.empty()) {
      resume_from(checkpoint);
    } else {
      if (options_.resume) note("no checkpoint to resume from: starting at step 0");
      state_.platform["processes"] = ranks_.size();
      open_model();
      check_longest_stage();
      if (ranks_.is_first()) io::write_file(file("run.json"), state_.run.dump(2) + "\n");
    }
    if (ranks_.is_first()) metrics_.emplace(file("metrics.jsonl"), state_.step, options_.note);
  }

  void read_run_file() {
    std::string path = options_.config_path;
    if (path.empty() && options_.resume && io::has_file(file("run.json"))) path = file("run.json");
    if (path.empty()) fail("pretrain", "a run file must be given (--config), got none");
    const nlohmann::json json = load_run_file(path, options_.overrides, {});
    config_ = parse_run_config(json);
    if (options_.seed) config_.seed = *options_.seed;
    vocabulary_.emplace(text::load_vocabulary(options_.data_dir));
    vocabulary_->require(data::required_roles(config_.objective), "pretrain");
    if (config_.init_from.empty()) {
      const bool named = json.contains("model") && json["model"].contains("vocab_size");
      if (named && config_.model.vocab_size != vocabulary_->size()) {
        fail("run file", "model.vocab_size must be the data's {} (or absent), got {}", vocabulary_->size(),
             config_.model.vocab_size);
      }
      config_.model = with_vocabulary(config_.model, vocabulary_->size(), vocabulary_->special().pad);
    }
    for (const Stage& stage : config_.stages) {
      total_steps_ += stage.steps;
      stage_ends_.push_back(total_steps_);
    }
  }

  // Opens every file it needs of the data directory, so a run can finish even if the directory is deleted.
  void open_data() {
    train_ = std::make_shared<data::Split>(options_.data_dir, "train", vocabulary_->hash());
    held_out_.emplace(train_, options_.data_dir, "valid", *vocabulary_);
    if (config_.pairs != data::Pairs::kNone) {
      data::Batcher(train_, vocabulary_->special(), stage_batches(0));
      held_out_->check(stage_batches(0));
    }
    tokenizer_.emplace(options_.data_dir);
    if (held_out_->empty()) note("no held-out documents: nothing is evaluated");
  }

  void open_model() {
    const nn::SeedScope drawn(config_.seed);
    if (config_.init_from.empty()) {
      check_types(config_.model, config_.pairs, "model");
      model_ = std::make_shared<nn::Model>(config_.model, head_of(config_.objective, config_.pairs));
      draw_initial_values(*model_, config_.optimizer.groups, config_.seed);
    } else {
      const std::string hash = text::load_vocabulary(config_.init_from).hash();
      if (hash != vocabulary_->hash()) {
        fail("pretrain", "the vocabulary of init_from must be the data's {}, got {} in {}", vocabulary_->hash(), hash,
             config_.init_from);
      }
      const ModelConfig config = load_config(config_.init_from);
      const bool is_causal = config.is_decoder;
      if (is_causal != (config_.objective == data::Objective::kCausal)) {
        fail("pretrain", "is_decoder of init_from must be {} with this objective, got {} in {}", !is_causal, is_causal,
             config_.init_from);
      }
      check_types(config, config_.pairs, "init_from");
      model_ =
          nn::load_model(config_.init_from, head_of(config_.objective, config_.pairs), at::kFloat, FreshHead::kAllowed);
    }
    make_optimizer();
  }

  void make_optimizer() {
    model_->to(device_);
    std::vector<at::Tensor> weights;
    int64_t elements = 0;
    for (const Parameter& parameter : trained_parameters(*model_)) {
      weights.push_back(parameter.weight);
      elements += parameter.weight.numel();
    }
    const bool is_divided = config_.sharding == Sharding::kOptimizer;
    optimizer_.emplace(trained_parameters(*model_), config_.optimizer, is_divided ? ranks_ : Ranks::alone());
    using Overlap = GradientSum::Overlap;
    gradients_.emplace(ranks_, std::move(weights), config_.reduce_precision,
                       config_.reduce_overlap ? Overlap::kBackward : Overlap::kNone);
    if (ranks_.size() > 1) note(memory_note(ranks_, config_, elements));
  }

  // A later stage may be too long for the model (beyond a learned table): reported at the start, not when it begins.
  void check_longest_stage() {
    int64_t longest = 0;
    for (const Stage& stage : config_.stages) longest = std::max(longest, stage.max_length);
    try {
      model_->check_length(longest);
    } catch (const Error& error) {
      fail("run file", "every stage must be as long as the model can read, got max_length {}: {}", longest,
           error.what());
    }
  }

  void resume_from(const std::string& checkpoint) {
    TrainState saved;
    load_state(checkpoint, [&](io::StrictObject& json) { saved = train_state(json); });
    check_same_run(saved.run, state_.run);
    if (saved.data != state_.data) {
      fail("resume", "the data must be those of the run, {}, got {} in {}", saved.data.dump(), state_.data.dump(),
           options_.data_dir);
    }
    saved.run = state_.run;
    saved.platform = resumed_platform(
        saved.platform, ranks_.size(), [this](const std::string& text) { note(text); }, device_.str());
    state_ = std::move(saved);
    model_ = nn::load_model(checkpoint, head_of(config_.objective, config_.pairs), at::kFloat);
    make_optimizer();
    load_moments(checkpoint, *optimizer_);
    optimizer_->set_updates(state_.updates);
    // After the process was killed, the oldest may still exist.
    if (ranks_.is_first()) drop_checkpoints(options_.output_dir, config_.keep_checkpoints);
    note(fmt::format("resuming at step {} of {}", state_.step, total_steps_));
  }

  // How a stage's micro-batches are made; split: into how many a micro-batch of the run file is divided.
  data::BatchOptions stage_batches(int64_t stage, int64_t split = 1) const {
    const Stage& s = config_.stages[static_cast<size_t>(stage)];
    return batch_options(config_, s.max_length, s.batch / (s.accumulate * split));
  }

  // A stage may cut the documents into rows of another length, so each stage starts a new epoch.
  void enter_stage(int64_t stage) {
    if (state_.step > 0 && stage != state_.stage) state_.cursor = {state_.cursor.epoch + 1, 0};
    state_.stage = stage;
    if (batcher_stage_ == stage) return;
    while (config_.stages[static_cast<size_t>(stage)].batch % micro_batches(stage) != 0) split_ /= 2;
    batcher_ = std::make_unique<data::Batcher>(train_, vocabulary_->special(), stage_batches(stage, split_));
    batcher_stage_ = stage;
  }

  // The number in a step, over all ranks.
  int64_t micro_batches(int64_t stage) const { return config_.stages[static_cast<size_t>(stage)].accumulate * split_; }

  // The batches of this rank; the cursor moves past the batches of all ranks.
  std::vector<LanguageBatch> own_batches(int64_t micro_batches) {
    RECORD_USER_SCOPE("data");
    std::vector<LanguageBatch> batches;
    const auto is_own = [this](int64_t i) { return ranks_.has(i); };
    for (const data::Batch& batch : batcher_->next_step(state_.cursor, micro_batches, is_own)) {
      batches.push_back(to_tensors(batch, device_));
    }
    return batches;
  }

  void one_step() {
    const double start = now_seconds();
    const int64_t step = state_.step + 1;
    const auto stage = std::lower_bound(stage_ends_.begin(), stage_ends_.end(), step) - stage_ends_.begin();
    enter_stage(stage);
    last_rate_ = learning_rate(config_.schedule, step, total_steps_);
    StartedStep started = start_step(step, stage);
    settle();  // the step before, which a GPU computed while this one was prepared
    started_.emplace(std::move(started));
    state_.step = step;
    state_.micro_batches += micro_batches(stage);
    state_.updates = optimizer_->updates();
    if (!device_.is_cuda()) settle();
    const double seconds = now_seconds() - start;
    interval_seconds_ += seconds;
    run_seconds_ += seconds;
  }

  // Repeats a step that does not fit into the memory of a GPU with smaller micro-batches.
  StartedStep start_step(int64_t step, int64_t stage) {
    while (true) {
      const data::BatchCursor cursor = state_.cursor;
      const int64_t count = micro_batches(stage);
      try {
        return start_train_step(*model_, *optimizer_, own_batches(count),
                                {config_.precision, last_rate_, step, config_.seed, state_.micro_batches, count},
                                {ranks_, *gradients_});
      } catch (const c10::OutOfMemoryError& error) {
        optimizer_->drop_gradients();
        state_.cursor = cursor;
        halve_batches(step, stage, error);
      }
    }
  }

  void halve_batches(int64_t step, int64_t stage, const c10::OutOfMemoryError& error) {
    const int64_t rows = config_.stages[static_cast<size_t>(stage)].batch / micro_batches(stage);
    if (ranks_.size() > 1 || rows % 2 != 0) {
      if (ranks_.size() == 1) {
        checkpoint_now(CheckpointCause::kSignal);
        checkpoints_->finish();
      }
      fail("memory", "step {} must fit into the memory of {}, got micro-batches of {} rows that do not: {}", step,
           device_.str(), rows, error.what_without_backtrace());
    }
    split_ *= 2;
    note(
        fmt::format("step {} does not fit into the memory of {}: from here on, accumulate is {} and micro-batches have "
                    "{} rows",
                    step, device_.str(), micro_batches(stage), rows / 2));
    batcher_stage_ = -1;
    enter_stage(stage);
  }

  // Adds the results of the started step, if any, to the sums of the interval.
  void settle() {
    if (!started_) return;
    last_step_ = std::exchange(started_, std::nullopt)->finish();
    state_.interval.loss_sum += last_step_.loss_sum;
    state_.interval.predicted_tokens += last_step_.predicted_tokens;
    state_.interval.real_tokens += last_step_.real_tokens;
    state_.interval.pair_loss_sum += last_step_.pair_loss_sum;
    state_.interval.correct_pairs += last_step_.correct_pairs;
    state_.interval.pairs += last_step_.pairs;
    timed_tokens_ += last_step_.real_tokens;
    run_tokens_ += last_step_.real_tokens;
    compute_seconds_ += last_step_.compute_seconds;
  }

  double interval_loss() const {
    return state_.interval.loss_sum / static_cast<double>(std::max<int64_t>(state_.interval.predicted_tokens, 1));
  }

  void log_interval() {
    settle();
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
  nlohmann::json job_times() {
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

  void append(nlohmann::json line, const nlohmann::json& more) {
    line.update(more);
    if (metrics_) metrics_->append(line);
  }

  void evaluate_now() {
    if (held_out_->empty()) return;
    settle();
    RECORD_USER_SCOPE("evaluation");
    const double start = now_seconds();
    state_.evaluation = held_out_->measure(*model_, stage_batches(state_.stage), config_.precision,
                                           config_.evaluate_batches, progress_, ranks_);
    append(
        to_json(state_.evaluation),
        {{"type", "evaluation"}, {"step", state_.step}, {"stage", state_.stage}, {"seconds", now_seconds() - start}});
    const double loss = state_.interval.predicted_tokens > 0 ? interval_loss() : state_.train_loss;
    std::string shown = fmt::format("{}  held-out loss {:.3f}", progress_line(loss), state_.evaluation.loss);
    if (state_.evaluation.pairs > 0) shown += fmt::format("  pair accuracy {:.3f}", state_.evaluation.pair_accuracy);
    progress_.message(shown);
  }

  // Every stage is measured in batches like the first stage's, so that the same documents are measured throughout.
  void evaluate_lengths() {
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

  void checkpoint_now(CheckpointCause cause = CheckpointCause::kRunFile) {
    settle();
    RECORD_USER_SCOPE("checkpoint");
    checkpoints_->begin(*model_, *optimizer_, to_json(state_), cause);
  }

  void write_profile() {
    std::string trace;
    ranks_.together([&] { trace = profile_->write(); });
    note(fmt::format(
        "profile: {}, for ui.perfetto.dev, chrome://tracing or TensorBoard, and a table in the .txt beside it", trace));
  }

  // Shows progress: step, loss, speed of the steps, and the time that is left, including evaluations and checkpoints.
  std::string progress_line(double loss) const {
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

  void finish() {
    ranks_.together([&] {
      if (!ranks_.is_first()) return;
      nn::save_model(*model_, options_.output_dir);
      tokenizer_->write(options_.output_dir);
    });
  }

  // A step, followed by its logging, evaluation and checkpoint.
  void go_one_step() {
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
  int64_t agree(const InterruptScope& interrupt) {
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
  int64_t go_through_steps(const InterruptScope& interrupt) {
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

  void note(const std::string& text) const {
    if (options_.note && ranks_.is_first()) options_.note(text);
  }
  std::string file(const std::string& name) const { return options_.output_dir + "/" + name; }

  const PretrainOptions& options_;
  const Ranks ranks_;
  io::Progress silent_;
  io::Progress& progress_;
  const at::Device device_;
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
  int64_t split_ = 1;                   // of a micro-batch of the run file, a power of 2
  std::optional<StartedStep> started_;  // whose numbers last_step_ does not have yet
  StepResult last_step_;
  double last_rate_ = 0;
  double start_ = 0;                               // of the steps, by now_seconds()
  double interval_seconds_ = 0, run_seconds_ = 0;  // of steps alone
  int64_t timed_tokens_ = 0, run_tokens_ = 0;      // of the interval and of the run, since this start
  double compute_seconds_ = 0;                     // of the passes of the interval, by this rank
};

}  // namespace

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