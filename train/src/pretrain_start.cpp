// How a pretraining run begins (pretrain_run.h): its run file, data, model and optimizer, new or from a checkpoint.
#include <algorithm>

#include "job_start.h"
#include "platform.h"
#include "pretrain_run.h"
#include "rf/data/identity.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/run_checkpoints.h"
#include "rf/nn/seed_scope.h"
#include "rf/text/tokenizer.h"

namespace rf::train {

namespace {

// Whether a run may continue with this run file: only the keys may differ that control writing and keeping checkpoints,
// what the ranks divide, and when they sum gradients.
void check_same_run(nlohmann::json before, nlohmann::json now) {
  before.emplace("reduce_precision", "float32");  // a run of an earlier version
  before.emplace("pairs", "none");                // the same
  for (const char* key : {"checkpoint_every_steps", "keep_checkpoints", "sharding", "reduce_overlap"}) {
    before.erase(key);
    now.erase(key);
  }
  const std::string difference = first_difference(before, now);
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

}  // namespace

PretrainRun::PretrainRun(const PretrainOptions& options, io::Progress& progress)
    : options_(options), ranks_(options.process_group), progress_(ranks_.is_first() ? progress : silent_) {
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
  state_.platform = fresh_platform();
  ranks_.together([&] { state_.data = data::identity(options_.data_dir); });
  require_same_job(ranks_, state_.run, state_.data, state_.platform);
  checkpoint = ranks_.gather(checkpoint).front();
  ranks_.together([&] { start(checkpoint); });
  require_shared(ranks_, options_.output_dir);
  require_same_weights(ranks_, *model_);
  model_->train();
  checkpoints_.emplace(
      CheckpointPlan{options_.output_dir, *tokenizer_, config_.keep_checkpoints, ranks_, [this] { metrics_->sync(); }});
}

void PretrainRun::start(const std::string& checkpoint) {
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

void PretrainRun::read_run_file() {
  std::string path = options_.config_path;
  if (path.empty() && options_.resume && io::has_file(file("run.json"))) path = file("run.json");
  if (path.empty()) fail("pretrain", "a run file must be given (--config), got none");
  const nlohmann::json json = io::read_json(path);
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
    config_.model.vocab_size = vocabulary_->size();
    config_.model.pad_token_id = vocabulary_->special().pad;
  }
  for (const Stage& stage : config_.stages) {
    total_steps_ += stage.steps;
    stage_ends_.push_back(total_steps_);
  }
}

// Opens every file it needs of the data directory, so a run can finish even if the directory is deleted.
void PretrainRun::open_data() {
  train_ = std::make_shared<data::Split>(options_.data_dir, "train", vocabulary_->hash());
  held_out_.emplace(train_, options_.data_dir, "valid", *vocabulary_);
  if (config_.pairs != data::Pairs::kNone) {
    data::Batcher(train_, vocabulary_->special(), stage_batches(0));
    held_out_->check(stage_batches(0));
  }
  tokenizer_.emplace(options_.data_dir);
  if (held_out_->empty()) note("no held-out documents: nothing is evaluated");
}

void PretrainRun::open_model() {
  const nn::SeedScope drawn(config_.seed);
  if (config_.init_from.empty()) {
    check_types(config_.model, config_.pairs, "model");
    model_ = std::make_shared<nn::Model>(config_.model, head_of(config_.objective, config_.pairs));
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

void PretrainRun::make_optimizer() {
  const AdamWOptions options{config_.weight_decay, config_.beta1, config_.beta2, config_.epsilon, config_.clip_norm};
  std::vector<at::Tensor> weights;
  int64_t elements = 0;
  for (const Parameter& parameter : trained_parameters(*model_)) {
    weights.push_back(parameter.weight);
    elements += parameter.weight.numel();
  }
  const bool is_divided = config_.sharding == Sharding::kOptimizer;
  optimizer_.emplace(trained_parameters(*model_), options, is_divided ? ranks_ : Ranks::alone());
  using Overlap = GradientSum::Overlap;
  gradients_.emplace(ranks_, std::move(weights), config_.reduce_precision,
                     config_.reduce_overlap ? Overlap::kBackward : Overlap::kNone);
  if (ranks_.size() > 1) note(memory_note(ranks_, config_, elements));
}

// A later stage may be too long for the model (beyond a learned table): reported at the start, not when it begins.
void PretrainRun::check_longest_stage() {
  int64_t longest = 0;
  for (const Stage& stage : config_.stages) longest = std::max(longest, stage.max_length);
  try {
    model_->check_length(longest);
  } catch (const Error& error) {
    fail("run file", "every stage must be as long as the model can read, got max_length {}: {}", longest, error.what());
  }
}

void PretrainRun::resume_from(const std::string& checkpoint) {
  TrainState saved;
  load_state(checkpoint, [&](io::StrictObject& json) { saved = train_state(json); });
  check_same_run(saved.run, state_.run);
  if (saved.data != state_.data) {
    fail("resume", "the data must be those of the run, {}, got {} in {}", saved.data.dump(), state_.data.dump(),
         options_.data_dir);
  }
  saved.run = state_.run;
  config_.least_masks = saved.least_masks;
  saved.platform = resumed_platform(saved.platform, ranks_.size(), [this](const std::string& text) { note(text); });
  state_ = std::move(saved);
  model_ = nn::load_model(checkpoint, head_of(config_.objective, config_.pairs), at::kFloat);
  make_optimizer();
  load_moments(checkpoint, *optimizer_);
  optimizer_->set_updates(state_.updates);
  // After the process was killed, the oldest may still exist.
  if (ranks_.is_first()) drop_checkpoints(options_.output_dir, config_.keep_checkpoints);
  note(fmt::format("resuming at step {} of {}", state_.step, total_steps_));
}

}  // namespace rf::train
