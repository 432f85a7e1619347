// A training of an encoder-decoder (rf/train/translation.h). Batches, dropout and initial weights are functions of the
// seed, so that a run that continues from a checkpoint has the same bits as one that was never interrupted.
#include "rf/train/translation.h"
#include "rf/data/identity.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "autocast.h"
#include "checkpoint.h"
#include "checkpoint_writer.h"
#include "cross_entropy.h"
#include "device.h"
#include "interrupt.h"
#include "metrics_log.h"
#include "optimizer.h"
#include "platform.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/strict_object.h"
#include "rf/model/run_checkpoints.h"
#include "rf/nn/seed_scope.h"
#include "rf/nn/translation_model.h"
#include "rf/train/run_directory.h"
#include "run_file.h"
#include "seconds.h"
#include "train_step.h"
#include "translation_data.h"

namespace rf::train {

namespace {

constexpr const char* kTranslation = "translation";

class TranslationRun {
 public:
  TranslationRun(const TranslationOptions& options, io::Progress& progress)
      : options_(options),
        progress_(progress),
        device_(open_device("train-translation", options.device)),
        tokenizer_(text::Tokenizer::load(options.tokenizer_dir)) {
    config_ = parse_translation_run(options.run);
    if (options.seed) config_.seed = *options.seed;
    fit_vocabulary();
    open_data();
    tokenizer_files_.emplace(options.tokenizer_dir);
    directory_.emplace(options.output_dir, RunDirectory::Use::kResume);
    check_settings();
    open_model();
    directory_->kept_settings("run.json", settings());  // once nothing is left to refuse
    model_->train();
    estimate_.emplace(static_cast<double>(config_.steps), static_cast<double>(step_));
    metrics_.emplace(file("metrics.jsonl"), step_, options.note);
    for (const double of_line : training_curve(options.output_dir).seconds) seconds_ += of_line;
    checkpoints_.emplace(CheckpointPlan{.run_dir = options.output_dir,
                                        .tokenizer = *tokenizer_files_,
                                        .keep = config_.keep_checkpoints,
                                        .sync = [this] { metrics_->sync(); }});
  }

  TranslationReport go() {
    const InterruptScope interrupt;
    note(plot_hint(options_.output_dir));
    while (step_ < config_.steps && interrupt.received() == 0) {
      if (checkpoints_->is_done()) checkpoints_->go_on();
      one_step();
      const bool is_last = step_ == config_.steps;
      if (is_last || step_ % config_.log_every_steps == 0) log_interval();
      if (is_last || step_ % config_.evaluate_every_steps == 0) evaluate_now();
      if (is_last || step_ % config_.checkpoint_every_steps == 0) checkpoint_now();
    }
    const bool is_complete = step_ == config_.steps;
    if (!is_complete) checkpoint_now(CheckpointCause::kSignal);
    checkpoints_->finish();
    if (is_complete) {
      nn::save_translation_model(*model_, options_.output_dir);
      tokenizer_files_->write(options_.output_dir);
    }
    progress_.finish();
    return {.steps = step_,
            .pairs = train_->size(),
            .train_loss = train_loss_,
            .valid_loss = valid_loss_,
            .seconds = seconds_,
            .target_tokens_per_second = own_seconds_ > 0 ? static_cast<double>(own_tokens_) / own_seconds_ : 0,
            .signal = interrupt.received(),
            .is_complete = is_complete};
  }

 private:
  // Its size and special tokens come from the tokenizer; a run file may repeat them.
  void fit_vocabulary() {
    const text::Vocabulary& vocabulary = tokenizer_.vocabulary();
    vocabulary.require({text::SpecialRole::kPad, text::SpecialRole::kEos}, kTranslation);
    if (const int64_t pad = vocabulary.special().pad; pad == vocabulary.special().eos) {
      fail(kTranslation, "pad_token and eos_token of the tokenizer must differ, got {} for both",
           io::printable(vocabulary.token(pad)));
    }
    const nlohmann::json given = options_.run.value("model", nlohmann::json::object());
    const auto fit = [&](const char* key, int64_t value, int64_t& target) {
      if (given.contains(key) && given[key] != value) {
        fail("run file", "model.{} must be the tokenizer's {} (or absent), got {}", key, value, given[key].dump());
      }
      target = value;
    };
    fit("vocab_size", vocabulary.size(), config_.model.vocab_size);
    fit("pad_token_id", vocabulary.special().pad, config_.model.pad_token_id);
    fit("eos_token_id", vocabulary.special().eos, config_.model.decoder->eos_token_id);
    fit("decoder_start_token_id", vocabulary.special().eos, config_.model.decoder->start_token_id);
  }

  void open_data() {
    train_.emplace(options_.train, tokenizer_, config_.max_length, options_.note);
    if (options_.valid.empty()) {
      note("no --valid: nothing is evaluated");
    } else {
      valid_.emplace(options_.valid, tokenizer_, config_.max_length, options_.note);
    }
  }

  nlohmann::json settings() const {
    return {{"translation", to_json(config_)},
            {"data",
             {{"train", train_->identity()},
              {"valid", valid_ ? valid_->identity() : ""},
              {"vocabulary", tokenizer_.vocabulary().hash()}}}};
  }

  // Only the keys for when checkpoints are written and how many are kept may differ from the run's.
  void check_settings() {
    nlohmann::json now = settings(), before = directory_->settings_or("run.json", now);
    if (!before.contains("translation")) {
      fail(kTranslation, "the output must be a directory of translation, got {}, which holds another kind of run",
           options_.output_dir);
    }
    for (nlohmann::json* each : {&now, &before}) {
      for (const char* key : {"checkpoint_every_steps", "keep_checkpoints"}) (*each)["translation"].erase(key);
    }
    const std::string difference = data::first_difference(before, now);
    if (!difference.empty()) {
      fail(kTranslation, "run file, files and tokenizer must be those of the run in {}, got {}", options_.output_dir,
           difference);
    }
  }

  void open_model() {
    const std::optional<std::string> checkpoint = newest_checkpoint(options_.output_dir);
    if (checkpoint) {
      model_ = nn::load_translation_model(*checkpoint, at::kFloat);
    } else {
      const nn::SeedScope drawn(config_.seed);
      model_ = std::make_shared<nn::TranslationModel>(config_.model);
    }
    model_->check_length(config_.max_length);
    model_->to(device_);
    optimizer_.emplace(trained_parameters(*model_, model_->weight_specs()), config_.optimizer);
    platform_["processes"] = 1;
    if (checkpoint) resume_from(*checkpoint);
  }

  void resume_from(const std::string& checkpoint) {
    load_state(checkpoint, [&](io::StrictObject& state) {
      state.require({"step", "micro_batches", "epoch", "batch", "updates", "interval_loss", "interval_tokens",
                     "train_loss", "platform"});
      step_ = state.integer("step", 0, 0, config_.steps);
      micro_batches_ = state.integer("micro_batches", 0, 0, INT64_MAX);
      epoch_ = state.integer("epoch", 0, 0, INT64_MAX);
      batch_ = state.integer("batch", 0, 0, INT64_MAX);
      interval_loss_ = state.number("interval_loss", 0, kAnyNumber);
      interval_tokens_ = state.integer("interval_tokens", 0, 0, INT64_MAX);
      train_loss_ = state.number("train_loss", 0, kAnyNumber);
      if (const nlohmann::json* loss = state.find("valid_loss"); loss != nullptr && loss->is_number()) {
        valid_loss_ = loss->get<double>();
      }
      optimizer_->set_updates(state.integer("updates", 0, 0, INT64_MAX));
      state.object("platform");  // its keys are compared below
      platform_ = resumed_platform(*state.find("platform"), 1, options_.note, device_.str());
    });
    load_moments(checkpoint, *optimizer_);
    note(fmt::format("continuing at step {} of {}", step_, config_.steps));
  }

  std::vector<int64_t> next_batch() {
    if (batches_epoch_ != epoch_) {
      batches_ = pair_batches(*train_, config_.max_tokens, config_.seed, epoch_);
      batches_epoch_ = epoch_;
    }
    std::vector<int64_t> batch = batches_.at(static_cast<size_t>(batch_));
    if (++batch_ == std::ssize(batches_)) {
      batch_ = 0;
      ++epoch_;
    }
    return batch;
  }

  void one_step() {
    const double start = now_seconds();
    std::vector<TranslationBatch> batches;
    int64_t tokens = 0;
    for (int64_t i = 0; i < config_.accumulate; ++i) {
      batches.push_back(make_translation_batch(*train_, next_batch(), config_.model, device_));
      tokens += batches.back().labels_N.size(0);
    }
    const int64_t step = step_ + 1;
    const double scale = 1.0 / static_cast<double>(tokens);
    std::vector<at::Tensor> losses;
    for (const TranslationBatch& batch : batches) {
      losses.push_back(pass(batch, scale, static_cast<uint64_t>(micro_batches_++)));
    }
    double sum = 0;
    for (const at::Tensor& loss : losses) sum += loss.item<float>() / scale;
    if (!std::isfinite(sum)) {
      fail(kTranslation, "the loss must be finite, got {} at step {}; try a lower learning_rate or a longer warm-up",
           std::abs(sum), step);
    }
    rate_ = learning_rate(config_.schedule, step, config_.steps);
    gradient_norm_ = optimizer_->step(rate_, step);
    optimizer_->drop_gradients();
    step_ = step;
    interval_loss_ += sum;
    interval_tokens_ += tokens;
    const double seconds = now_seconds() - start;
    seconds_ += seconds;
    own_seconds_ += seconds;
    interval_seconds_ += seconds;
    own_tokens_ += tokens;
    progress_.update(progress_line(sum / static_cast<double>(tokens)));
  }

  // Adds the gradient; returns the smoothed loss, summed over the tokens and scaled.
  at::Tensor pass(const TranslationBatch& batch, double scale, uint64_t forward) {
    nn::TranslationInput input = batch.input;
    input.dropout_key = nn::DropoutKey{config_.seed, forward};
    const AutocastScope autocast(config_.precision, device_);
    const at::Tensor hidden_NC = model_->forward(input).flatten(0, 1).index_select(0, batch.places_N);
    const at::Tensor loss =
        scaled_cross_entropy(model_->logits(hidden_NC), batch.labels_N, scale, config_.label_smoothing);
    loss.backward();
    return loss.detach();
  }

  void log_interval() {
    train_loss_ = interval_loss_ / static_cast<double>(interval_tokens_);
    metrics_->append({{"type", "train"},
                      {"step", step_},
                      {"epoch", epoch_ + 1},
                      {"loss", train_loss_},
                      {"learning_rate", rate_},
                      {"gradient_norm", gradient_norm_},
                      {"tokens", interval_tokens_},
                      {"seconds", interval_seconds_}});
    interval_loss_ = interval_seconds_ = 0;
    interval_tokens_ = 0;
  }

  // The loss without smoothing, nats per target token, of all held-out pairs.
  void evaluate_now() {
    if (!valid_) return;
    const c10::NoGradGuard no_grad;
    const double start = now_seconds();
    model_->eval();
    double sum = 0;
    int64_t tokens = 0;
    {
      const AutocastScope autocast(config_.precision, device_);
      for (const std::vector<int64_t>& pairs : pair_batches(*valid_, config_.max_tokens, 0, 0)) {
        const TranslationBatch batch = make_translation_batch(*valid_, pairs, config_.model, device_);
        const at::Tensor hidden_NC = model_->forward(batch.input).flatten(0, 1).index_select(0, batch.places_N);
        sum += summed_cross_entropy(model_->logits(hidden_NC), batch.labels_N);
        tokens += batch.labels_N.size(0);
      }
    }
    model_->train();
    valid_loss_ = sum / static_cast<double>(tokens);
    metrics_->append({{"type", "evaluation"},
                      {"step", step_},
                      {"loss", *valid_loss_},
                      {"perplexity", std::exp(*valid_loss_)},
                      {"tokens", tokens},
                      {"seconds", now_seconds() - start}});
    progress_.message(fmt::format("{}  held-out loss {:.3f}", progress_line(train_loss_), *valid_loss_));
  }

  void checkpoint_now(CheckpointCause cause = CheckpointCause::kRunFile) {
    checkpoints_->begin(*model_, *optimizer_,
                        {{"step", step_},
                         {"micro_batches", micro_batches_},
                         {"epoch", epoch_},
                         {"batch", batch_},
                         {"updates", optimizer_->updates()},
                         {"interval_loss", interval_loss_},
                         {"interval_tokens", interval_tokens_},
                         {"train_loss", train_loss_},
                         {"valid_loss", valid_loss_ ? nlohmann::json(*valid_loss_) : nlohmann::json()},
                         {"platform", platform_}},
                        cause);
  }

  std::string progress_line(double loss) const {
    return fmt::format("step {}/{}  epoch {}  loss {:.3f}  lr {:.2e}  {:.0f} target tokens/s{}", step_, config_.steps,
                       epoch_ + 1, loss, rate_, static_cast<double>(own_tokens_) / own_seconds_,
                       estimate_->left(static_cast<double>(step_)));
  }

  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }
  std::string file(const std::string& name) const { return options_.output_dir + "/" + name; }

  const TranslationOptions& options_;
  io::Progress& progress_;
  const at::Device device_;
  TranslationRunConfig config_;
  text::Tokenizer tokenizer_;
  std::optional<PairTokens> train_, valid_;
  std::optional<RunDirectory> directory_;
  std::optional<TokenizerFiles> tokenizer_files_;
  std::shared_ptr<nn::TranslationModel> model_;
  std::optional<AdamW> optimizer_;
  std::optional<MetricsLog> metrics_;
  std::optional<CheckpointWriter> checkpoints_;
  nlohmann::json platform_ = fresh_platform(device_.str());

  // Contents of a checkpoint.
  int64_t step_ = 0, micro_batches_ = 0, epoch_ = 0, batch_ = 0;  // batch_: the next one of the epoch
  double interval_loss_ = 0;                                      // sum over the tokens since the last line
  int64_t interval_tokens_ = 0;
  double train_loss_ = 0, seconds_ = 0;
  std::optional<double> valid_loss_;

  std::vector<std::vector<int64_t>> batches_;  // of epoch_
  int64_t batches_epoch_ = -1;
  double rate_ = 0, gradient_norm_ = 0, interval_seconds_ = 0, own_seconds_ = 0;
  int64_t own_tokens_ = 0;
  std::optional<io::TimeEstimate> estimate_;
};

}  // namespace

TranslationRunConfig parse_translation_run(const nlohmann::json& json) {
  constexpr int64_t kMaxTokens = int64_t{1} << 24;
  io::StrictObject object(json, kRunFile, "");
  TranslationRunConfig run;
  if (const nlohmann::json* model = object.find("model")) run.model = parse_translation_config(*model);
  run.steps = object.integer("steps", run.steps, 1, kMaxSteps);
  run.max_tokens = object.integer("max_tokens", run.max_tokens, 2, kMaxTokens);
  run.accumulate = object.integer("accumulate", run.accumulate, 1, kMaxTokens);
  run.max_length = object.integer("max_length", run.max_length, 2, kMaxTokens);
  run.label_smoothing = object.number("label_smoothing", run.label_smoothing, {0, 1, io::NumberRange::Ends::kOpenHigh});
  run.evaluate_every_steps = object.integer("evaluate_every_steps", run.evaluate_every_steps, 1, kMaxSteps);
  parse_shared_keys(object, run);
  refuse_initial_values(run.optimizer.groups, "in a run of train-translation");
  object.finish();
  if (run.max_length > run.max_tokens) {
    fail(kRunFile, "max_tokens must be at least max_length, {}, got {}", run.max_length, run.max_tokens);
  }
  return run;
}

nlohmann::json to_json(const TranslationRunConfig& run) {
  nlohmann::json json = shared_keys(run);
  json.update({{"model", rf::to_json(run.model)},
               {"steps", run.steps},
               {"max_tokens", run.max_tokens},
               {"accumulate", run.accumulate},
               {"max_length", run.max_length},
               {"label_smoothing", run.label_smoothing}});
  return json;
}

TranslationReport train_translation(const TranslationOptions& options, io::Progress& progress) {
  return TranslationRun(options, progress).go();
}

}  // namespace rf::train
