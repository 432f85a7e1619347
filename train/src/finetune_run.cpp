// The training loop of fine-tuning (finetune_run.h). Batches, dropout and a new head are functions of the seed alone,
// so that a run that continues from a checkpoint has the same bits as one that was never interrupted.
#include "finetune_run.h"

#include <cmath>

#include "autocast.h"
#include "checkpoint_writer.h"
#include "device.h"
#include "finetune_data.h"
#include "metrics_log.h"
#include "optimizer.h"
#include "rf/io/error.h"
#include "rf/model/run_checkpoints.h"
#include "rf/nn/seed_scope.h"
#include "run_file.h"
#include "seconds.h"
#include "train_step.h"

namespace rf::train {

namespace {

constexpr int64_t kLogEverySteps = 10;

class Run {
 public:
  // checkpoint: that of the model, if it comes from one.
  Run(const FinetuneOptions& options, const FinetuneData& data, const TokenizerFiles& tokenizer, TaskModel& model,
      const std::string& directory, const std::optional<std::string>& checkpoint, io::Progress& progress,
      FinetuneRun& run)
      : options_(options),
        data_(data),
        model_(model),
        directory_(directory),
        progress_(progress),
        run_(run),
        optimizer_(trained_parameters(*model.model), optimizer_options()) {
    const auto examples = static_cast<int64_t>(data.train.examples.size());
    steps_per_epoch_ = (examples + options.batch - 1) / options.batch;
    total_steps_ = options.epochs * steps_per_epoch_;
    schedule_.kind = options.schedule;
    schedule_.learning_rate = run.learning_rate;
    schedule_.warmup_steps = std::llround(std::ceil(options.warmup * static_cast<double>(total_steps_)));
    if (checkpoint) resume_from(*checkpoint);
    metrics_.emplace(directory + "/metrics.jsonl", run.steps, options.note);
    checkpoints_.emplace(
        CheckpointPlan{.run_dir = directory, .tokenizer = tokenizer, .sync = [this] { metrics_->sync(); }});
    first_step_ = run.steps;
    first_seconds_ = run.seconds;
    estimate_.emplace(static_cast<double>(total_steps_), static_cast<double>(first_step_));
  }

  // False if a signal ended it early.
  bool go(const InterruptScope& interrupt) {
    for (int64_t epoch = run_.steps / steps_per_epoch_; epoch < options_.epochs; ++epoch) {
      const auto batches = epoch_batches(data_.train.examples, options_.batch, run_.seed, epoch);
      for (auto i = static_cast<size_t>(run_.steps % steps_per_epoch_); i < batches.size(); ++i) {
        if (interrupt.received() != 0) {
          checkpoint_now();
          checkpoints_->finish();
          return false;
        }
        if (checkpoints_->is_done()) checkpoints_->go_on();
        step(batches[i]);
        const bool epoch_ends = run_.steps == (epoch + 1) * steps_per_epoch_;
        if (epoch_ends || run_.steps % kLogEverySteps == 0) log(epoch);
        const int64_t every = options_.evaluate_every_steps;
        if (every > 0 ? run_.steps % every == 0 || run_.steps == total_steps_ : epoch_ends) {
          if (!evaluate(epoch)) return true;
          if (run_.steps < total_steps_) checkpoint_now();
        }
      }
    }
    return true;
  }

 private:
  AdamWOptions optimizer_options() const {
    AdamWOptions adamw;
    adamw.weight_decay = options_.weight_decay;
    adamw.clip_norm = options_.clip_norm;
    return adamw;
  }

  void resume_from(const std::string& checkpoint) {
    load_state(checkpoint, [&](io::StrictObject& state) {
      state.require({"step", "best_step", "seconds", "metrics", "without_better", "updates"});
      run_.steps = state.integer("step", 0, 0, total_steps_);
      run_.best_step = state.integer("best_step", 0, 0, run_.steps);
      run_.seconds = state.number("seconds", 0, kNotNegative);
      if (run_.best_step > 0) run_.metrics = metrics_of(state, model_.settings.metric);
      evaluations_without_improvement_ = state.integer("without_better", 0, 0, INT64_MAX);
      io::StrictObject interval = state.object("interval");
      interval.require({"loss_sum", "steps"});
      loss_sum_ = interval.number("loss_sum", 0, kAnyNumber);
      interval_steps_ = interval.integer("steps", 0, 0, run_.steps);
      optimizer_.set_updates(state.integer("updates", 0, 0, INT64_MAX));
    });
    load_moments(checkpoint, optimizer_);
    if (options_.note) options_.note(fmt::format("continuing at step {} of {}", run_.steps, total_steps_));
  }

  void checkpoint_now() {
    checkpoints_->begin(*model_.model, optimizer_,
                        {{"step", run_.steps},
                         {"best_step", run_.best_step},
                         {"seconds", run_.seconds},
                         {"metrics", run_.metrics},
                         {"without_better", evaluations_without_improvement_},
                         {"interval", {{"loss_sum", loss_sum_}, {"steps", interval_steps_}}},
                         {"updates", optimizer_.updates()}});
  }

  void step(const std::vector<size_t>& indices) {
    const double start = now_seconds();
    std::vector<const tasks::Example*> examples;
    for (const size_t index : indices) examples.push_back(&data_.train.examples[index]);
    const int64_t step = run_.steps + 1;
    double loss = 0;
    {
      const at::Device device = device_of(*model_.model);
      const AutocastScope autocast(options_.precision, device);
      TaskBatch batch = make_batch(examples, model_.model->config().pad_token_id, device);
      batch.input.dropout_key = nn::DropoutKey{run_.seed, static_cast<uint64_t>(step)};
      const at::Tensor logits_NL = logits_of(model_.model->forward(batch.input), batch, model_.task->head());
      const TaskLoss of_batch = task_loss(*model_.task, batch, logits_NL, options_.label_smoothing);
      loss = of_batch.mean;
      if (std::isfinite(loss)) logits_NL.backward(of_batch.gradient_NL);
    }
    if (!std::isfinite(loss)) {
      fail("finetune", "the loss must be finite, got {} at step {} of learning rate {}; try a lower one",
           std::abs(loss), step, run_.learning_rate);
    }
    rate_ = learning_rate(schedule_, step, total_steps_);
    gradient_norm_ = optimizer_.step(rate_, step);
    optimizer_.drop_gradients();
    run_.steps = step;
    const double seconds = now_seconds() - start;
    run_.seconds += seconds;
    interval_seconds_ += seconds;
    loss_sum_ += loss;
    ++interval_steps_;
    progress_.update(progress_line(loss));
  }

  // Shows progress: step, loss, speed of the steps, and the time that is left, including evaluations.
  std::string progress_line(double loss) const {
    const auto records = static_cast<double>((run_.steps - first_step_) * options_.batch);
    return fmt::format("step {}/{}  loss {:.3f}  {:.1f} records/s{}", run_.steps, total_steps_, loss,
                       records / (run_.seconds - first_seconds_), estimate_->left(static_cast<double>(run_.steps)));
  }

  void log(int64_t epoch) {
    logged_loss_ = loss_sum_ / static_cast<double>(interval_steps_);
    metrics_->append({{"type", "train"},
                      {"step", run_.steps},
                      {"epoch", epoch + 1},
                      {"loss", logged_loss_},
                      {"learning_rate", rate_},
                      {"gradient_norm", gradient_norm_},
                      {"seconds", interval_seconds_}});
    loss_sum_ = interval_seconds_ = 0;
    interval_steps_ = 0;
  }

  // False if the last options_.patience evaluations brought no improvement.
  bool evaluate(int64_t epoch) {
    tasks::Evaluated evaluated = score_examples(model_, data_.valid.examples,
                                                io::counted(progress_, "evaluating", std::ssize(data_.valid.examples)));
    if (!std::isfinite(evaluated.loss)) {
      fail("finetune",
           "the loss must be finite, got {} on the valid file after step {} of learning rate {}; try a lower one",
           std::abs(evaluated.loss), run_.steps, run_.learning_rate);
    }
    const nlohmann::json metrics = model_.task->metrics(data_.valid.with(std::move(evaluated.scores)));
    nlohmann::json line = metrics;
    line.update({{"type", "evaluation"}, {"step", run_.steps}, {"epoch", epoch + 1}, {"loss", evaluated.loss}});
    metrics_->append(line);
    const double loss = interval_steps_ > 0 ? loss_sum_ / static_cast<double>(interval_steps_) : logged_loss_;
    const std::string& metric = model_.settings.metric;
    const double value = chosen_by(metrics, metric);
    progress_.message(
        fmt::format("{}  held-out loss {:.3f}  {} {:.3f}", progress_line(loss), evaluated.loss, metric, value));
    if (run_.best_step == 0 || value > chosen_by(run_.metrics, metric)) {
      run_.best_step = run_.steps;
      run_.metrics = metrics;
      nn::save_model(*model_.model, directory_, nn::StoredTerms::kLeftOut);
      evaluations_without_improvement_ = 0;
      return true;
    }
    return options_.patience == 0 || ++evaluations_without_improvement_ < options_.patience;
  }

  const FinetuneOptions& options_;
  const FinetuneData& data_;
  TaskModel& model_;
  const std::string& directory_;
  io::Progress& progress_;
  FinetuneRun& run_;
  AdamW optimizer_;
  std::optional<MetricsLog> metrics_;
  std::optional<CheckpointWriter> checkpoints_;
  ScheduleConfig schedule_;
  int64_t steps_per_epoch_ = 0, total_steps_ = 0, evaluations_without_improvement_ = 0;
  double rate_ = 0, gradient_norm_ = 0;
  double loss_sum_ = 0, interval_seconds_ = 0;  // since the last line of the metrics
  double logged_loss_ = 0;                      // the last one in the metrics
  int64_t interval_steps_ = 0;
  int64_t first_step_ = 0;  // steps done before this process; first_seconds_ are their time
  double first_seconds_ = 0;
  std::optional<io::TimeEstimate> estimate_;
};

}  // namespace

nlohmann::json metrics_of(io::StrictObject& run, const std::string& metric) {
  io::StrictObject metrics = run.object("metrics");
  metrics.require({metric.c_str()});
  for (const auto& item : run.find("metrics")->items()) {
    if (!item.value().is_null()) metrics.number(item.key(), 0, kAnyNumber);
  }
  return *run.find("metrics");
}

double chosen_by(const nlohmann::json& metrics, const std::string& metric) {
  const nlohmann::json& value = metrics.at(metric);
  return value.is_null() ? -kInfinity : value.get<double>();
}

std::shared_ptr<nn::Model> initial_model(const FinetuneOptions& options, const tasks::Task& task, uint64_t seed) {
  ModelConfig config = load_config(options.model_dir);
  task.set_outputs(config);
  if (!options.classifier_pooling.empty()) config.classifier_pooling = options.classifier_pooling;
  static_cast<void>(to_json(config));  // its rules, before hours of training
  const nn::SeedScope drawn(seed);
  return nn::load_model(options.model_dir, config, task.head(), at::kFloat, FreshHead::kAllowed);
}

bool finetune_run(const FinetuneOptions& options, const FinetuneData& data, const TokenizerFiles& tokenizer,
                  TaskModel& model, const std::string& directory, const InterruptScope& interrupt,
                  io::Progress& progress, FinetuneRun& run) {
  remove_temporaries(directory);
  const std::optional<std::string> checkpoint = newest_checkpoint(directory);
  model.model = checkpoint ? nn::load_model(*checkpoint, model.task->head(), at::kFloat)
                           : initial_model(options, *model.task, run.seed);
  model.model->to(open_device("finetune", options.device));
  model.model->train();
  return Run(options, data, tokenizer, model, directory, checkpoint, progress, run).go(interrupt);
}

}  // namespace rf::train
