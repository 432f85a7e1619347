// Held-out measurements (held_out.h).
#include "held_out.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "job_start.h"
#include "platform.h"
#include "rf/data/identity.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/model/model_types.h"
#include "rf/text/tokenizer.h"

namespace rf::train {

data::BatchOptions batch_options(const RunConfig& run, int64_t max_length, int64_t batch_size) {
  return {max_length, batch_size, run.packing, run.objective, run.mask, run.seed, run.pairs};
}

int64_t batch_tokens(const Stage& stage) { return stage.max_length * (stage.batch / stage.accumulate); }

HeldOut::HeldOut(std::shared_ptr<const data::Split> train, const std::string& data_dir, const std::string& split,
                 const text::Vocabulary& vocabulary)
    : special_(vocabulary.special()),
      train_(std::move(train)),
      split_(std::make_shared<data::Split>(data_dir, split, vocabulary.hash())) {}

void HeldOut::check(const data::BatchOptions& options) const {
  if (!empty()) data::Batcher(split_, special_, options);
}

EvaluationReport HeldOut::measure(nn::Model& model, const data::BatchOptions& options, Precision precision,
                                  int64_t max_batches, io::Progress& progress, const Ranks& ranks) {
  if (!unigram_) unigram_.emplace(*train_);
  const data::Batcher rows(split_, special_, options);
  const int64_t all = (rows.rows_per_epoch() + options.batch_size - 1) / options.batch_size;
  const int64_t batches = max_batches > 0 ? std::min(all, max_batches) : all;
  return evaluate_rows(model, rows, *unigram_, precision, max_batches, counted(progress, "evaluating batches", batches),
                       ranks);
}

std::optional<EvaluationReport> HeldOut::measure_length(nn::Model& model, const RunConfig& run, int64_t length,
                                                        int64_t batch_tokens, io::Progress& progress, const Note& note,
                                                        const Ranks& ranks) {
  try {
    model.check_length(length);  // before the ranks of a job share the batches
    const io::Progress::Part part(progress, fmt::format("{} tokens", length));
    return measure(model, length_options(run, length, batch_tokens), run.precision, run.evaluate_batches, progress,
                   ranks);
  } catch (const LostRank&) {
    throw;
  } catch (const Error& error) {
    if (note) note(fmt::format("{} tokens: {}", length, error.what()));
    return std::nullopt;
  }
}

data::BatchOptions HeldOut::length_options(const RunConfig& run, int64_t length, int64_t batch_tokens) const {
  return batch_options(run, length, std::max<int64_t>(batch_tokens / length, 1));
}

std::optional<double> HeldOut::unigram_loss(const RunConfig& run, int64_t length, int64_t batch_tokens) {
  if (!unigram_) unigram_.emplace(*train_);
  try {
    const data::Batcher rows(split_, special_, length_options(run, length, batch_tokens));
    return rf::train::unigram_loss(rows, *unigram_, run.evaluate_batches);
  } catch (const Error&) {  // reported when a model is measured at this length
    return std::nullopt;
  }
}

nlohmann::json to_json(const EvaluationReport& report) {
  nlohmann::json json = {{"loss", report.loss},
                         {"perplexity", std::exp(report.loss)},
                         {"bits", report.loss / std::numbers::ln2},
                         {"accuracy", report.accuracy},
                         {"unigram_loss", report.unigram_loss},
                         {"predicted_tokens", report.predicted_tokens}};
  if (report.pairs > 0) {
    json.update({{"pair_loss", report.pair_loss}, {"pair_accuracy", report.pair_accuracy}, {"pairs", report.pairs}});
  }
  return json;
}

namespace {

// The inputs of an evaluation, opened and checked.
struct Evaluation {
  explicit Evaluation(const EvaluateOptions& options);
  text::Vocabulary vocabulary;
  HeldOut held_out;
  data::Objective objective;
  std::shared_ptr<nn::Model> model;
};

void check_pairs(const std::string& model_dir) {
  const std::vector<std::string> classes = load_config(model_dir).architectures;
  if (classes.size() == 1 && classes.front().ends_with("ForPreTraining")) return;
  fail("evaluate", "pairs need a model that was pretrained with them, a ..ForPreTraining, got {} in {}",
       classes.empty() ? "none" : io::printable(classes.front()), model_dir);
}

text::Vocabulary load_vocabulary(const std::string& model_dir) {
  check_model_type(model_dir, Opens::kEncoders);
  return text::load_vocabulary(model_dir);
}

Evaluation::Evaluation(const EvaluateOptions& options)
    : vocabulary(load_vocabulary(options.model_dir)),
      held_out(std::make_shared<data::Split>(options.data_dir, "train", vocabulary.hash()), options.data_dir,
               options.split, vocabulary),
      objective(objective_of(load_config(options.model_dir))) {
  vocabulary.require(data::required_roles(objective), "evaluate");
  if (objective == data::Objective::kCausal && options.mask != data::MaskOptions{}) {
    fail("evaluate", "masking options go with a masked language model, got the causal one in {}", options.model_dir);
  }
  if (options.pairs != data::Pairs::kNone) check_pairs(options.model_dir);
  model = nn::load_model(options.model_dir, head_of(objective, options.pairs), at::kFloat);
  if (model->config().prefix_lm) {
    fail("evaluate", "prefix_lm must be false, because a text without a prefix has nothing to predict, got true in {}",
         options.model_dir);
  }
  if (model->config().vocab_size != vocabulary.size()) {
    fail("evaluate", "vocab_size of {} must be its vocabulary's {}, got {}", options.model_dir, vocabulary.size(),
         model->config().vocab_size);
  }
}

// EvaluateOptions::max_length, where it is absent.
int64_t length_of_run(const std::string& model_dir) {
  constexpr int64_t kOfOtherModels = 128;
  const auto read = [&](const char* name) {
    const std::string path = fmt::format("{}/{}", model_dir, name);
    return io::has_file(path) ? io::read_json(path) : nlohmann::json();
  };
  const nlohmann::json state = read("state.json");
  const nlohmann::json run = state.contains("run") ? state["run"] : read("run.json");
  if (!run.contains("stages")) return kOfOtherModels;
  const std::vector<Stage> stages = parse_run_config(run).stages;
  const auto last = static_cast<int64_t>(stages.size()) - 1;
  const bool says = state.contains("stage") && state["stage"].is_number_integer();
  return stages[static_cast<size_t>(says ? std::clamp<int64_t>(state["stage"], 0, last) : last)].max_length;
}

}  // namespace

EvaluationReport evaluate(const EvaluateOptions& options, io::Progress& progress) {
  const Ranks ranks(options.process_group);
  std::optional<Evaluation> work;
  std::string identity;
  int64_t max_length = 0;
  ranks.together([&] {
    work.emplace(options);
    max_length = options.max_length ? *options.max_length : length_of_run(options.model_dir);
    identity = data::identity(options.data_dir);
  });
  const nlohmann::json settings = {{"split", options.split},
                                   {"max_length", max_length},
                                   {"batch", options.batch_size},
                                   {"packed", options.packing == data::Packing::kPacked},
                                   {"seed", options.seed},
                                   {"bfloat16", options.precision == Precision::kBfloat16},
                                   {"pairs", static_cast<int>(options.pairs)},
                                   {"mask_probability", options.mask.probability},
                                   {"whole_words", options.mask.unit == data::MaskUnit::kWholeWord}};
  require_same_job(ranks, settings, identity, fresh_platform());
  require_same_weights(ranks, *work->model);
  io::Progress silent;
  EvaluationReport report = work->held_out.measure(
      *work->model,
      {max_length, options.batch_size, options.packing, work->objective, options.mask, options.seed, options.pairs},
      options.precision, 0, ranks.is_first() ? progress : silent, ranks);
  report.is_first_rank = ranks.is_first();
  report.max_length = max_length;
  return report;
}

}  // namespace rf::train
