// Corpus and runs of the trained experiments (language_model_runs.h).
#include "language_model_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "data_sets.h"
#include "rf/data/prepare.h"
#include "rf/io/files.h"
#include "rf/text/byte_tokenizer.h"
#include "rf/text/vocabulary_trainer.h"
#include "rf/text/word_vocabulary.h"
#include "rf/train/job.h"
#include "rf/train/pretrain.h"
#include "rf/train/training_curve.h"
#include "training_record.h"

namespace rf::reproduce {

namespace {

namespace fs = std::filesystem;

// The file of a vocabulary, or "bytes"; nullptr: it is trained.
const std::string* named_tokens(const Corpus& corpus) {
  return std::get_if<std::string>(&corpus.tokens);
}

bool is_bytes(const Corpus& corpus) {
  return named_tokens(corpus) && *named_tokens(corpus) == "bytes";
}

data::ReadOptions inputs(const Context& context, const Corpus& corpus) {
  data::ReadOptions options;
  for (const std::string& file : corpus.files) options.inputs.push_back(context.data_dir + "/" + file);
  options.document_rule = data::document_rule(corpus.documents.empty() ? "file" : corpus.documents);
  options.quotes = data::Quotes::kText;
  if (!corpus.field.empty()) options.field = corpus.field;
  return options;
}

text::Vocabulary vocabulary(const Context& context, const Corpus& corpus) {
  if (const std::string* file = named_tokens(corpus)) return text::Vocabulary::load(context.data_dir + "/" + *file);
  text::VocabularyTrainer trainer({.size = std::get<int64_t>(corpus.tokens)});
  data::DocumentReader(inputs(context, corpus)).read([&](const data::DocumentPart& piece) { trainer.add(piece.text); });
  return trainer.train();
}

text::Tokenizer tokenizer(const Context& context, const Corpus& corpus) {
  if (is_bytes(corpus)) return text::byte_tokenizer();
  const text::Vocabulary made = vocabulary(context, corpus);
  const text::Pipeline pipeline = text::pipeline_of_name(corpus.pipeline.empty() ? "bert" : corpus.pipeline);
  if (pipeline == text::Pipeline::kBert) return {made, {}};
  const auto dictionary = text::Dictionary::load(context.data_dir + "/" + corpus.dictionary);
  const text::TokenizerOptions options{.pipeline = pipeline, .dictionary = dictionary};
  if (corpus.add_words == 0) return {made, options};
  text::WordVocabularyBuilder words({made, {}}, dictionary);
  data::DocumentReader(inputs(context, corpus)).read([&](const data::DocumentPart& piece) { words.add(piece.text); });
  return {words.build(corpus.add_words, /*min_frequency=*/2).vocabulary, options};
}

// The data directory of a corpus. It is made unless there is one from the same files with the same settings.
std::string prepared(const Context& context, const Corpus& corpus) {
  const std::string directory = fmt::format("{}/corpus/{}", context.shared_dir, corpus.name);
  const std::string mark = directory + "/corpus.json", data_dir = directory + "/data";
  const nlohmann::json made_of = {{"corpus", corpus}, {"data", identity_of(context.data_dir, corpus.all_files())}};
  if (fs::exists(mark) && io::read_json(mark) == made_of) return data_dir;
  if (context.note) context.note(fmt::format("preparing {}", directory));
  const std::string model_dir = directory + "/vocabulary";
  fs::create_directories(model_dir);
  tokenizer(context, corpus).save(model_dir);
  if (!corpus.dictionary.empty()) {  // where prepare looks for it
    fs::copy_file(context.data_dir + "/" + corpus.dictionary, model_dir + "/dict.txt",
                  fs::copy_options::overwrite_existing);
  }
  data::prepare({.input = inputs(context, corpus),
                 .model_dir = model_dir,
                 .words = corpus.dictionary.empty() ? data::WordRule::kTokenizer : data::WordRule::kJieba,
                 .output_dir = data_dir,
                 .valid_fraction = corpus.valid_fraction},
                context.progress);
  io::write_file(mark, made_of.dump(2) + "\n");
  return data_dir;
}

}  // namespace

Files Corpus::all_files() const {
  Files all = files;
  if (named_tokens(*this) && !is_bytes(*this)) all.push_back(*named_tokens(*this));
  if (!dictionary.empty()) all.push_back(dictionary);
  return all;
}

void to_json(nlohmann::json& json, const Corpus& corpus) {
  json = {{"name", corpus.name}, {"files", corpus.files}, {"valid_fraction", corpus.valid_fraction}};
  std::visit([&](const auto& tokens) { json["tokens"] = tokens; }, corpus.tokens);
  if (!corpus.documents.empty()) json["documents"] = corpus.documents;
  if (!corpus.field.empty()) json["field"] = corpus.field;
  if (!corpus.dictionary.empty()) json["dictionary"] = corpus.dictionary;
  if (!corpus.pipeline.empty()) json["pipeline"] = corpus.pipeline;
  if (corpus.add_words > 0) json["add_words"] = corpus.add_words;
}

void to_json(nlohmann::json& json, const Design& design) {
  json = {{"runs", design.runs}, {"corpus", design.corpus}, {"seeds", design.seeds}};
  if (!design.search.is_empty()) {
    json["search"] = design.search;
  }
  if (!design.run_files.empty()) {
    json["run_files"] = design.run_files;
    return;
  }
  json["arms"] = design.arms;
  json["run"] = design.run;
  if (!design.length_factors.empty()) json["length_factors"] = design.length_factors;
}

void to_json(nlohmann::json& json, const Trained& settings) {
  const Design& design = settings.design;
  json = {{"files", design.corpus.all_files()}, {"seeds", design.seeds}, {"design", design}};
}

Corpus book_corpus(Scale scale) {
  switch (scale) {
    case Scale::kTiny:
      return {.name = "books", .files = {"en_books/books_valid.jsonl"}, .tokens = 4096, .valid_fraction = 0.25};
    case Scale::kSmall:
      return {.name = "books",
              .files = {"en_books/books_train.jsonl", "en_books/books_valid.jsonl"},
              .tokens = 4096,
              .valid_fraction = 0.05};
    default:  // BookCorpus and Wikipedia, 8 parts to 2
      return {.name = "pretraining",
              .files = {"en_pretraining/train.jsonl"},
              .tokens = "vocabs/bert_base_uncased_vocab.txt",
              .valid_fraction = 0.2};
  }
}

train::RunConfig masked_lm_run(Scale scale, int64_t small_steps) {
  train::RunConfig run = train::compare_defaults();
  run.stages.front().steps = by_scale(scale, int64_t{60}, small_steps);
  run.schedule.warmup_steps = by_scale(scale, 15, 100);
  run.evaluate_batches = by_scale(scale, 5, 40);
  if (scale == Scale::kPaper) {
    run.model = {};
    run.model.family = Family::kBert;
    run.model.max_position_embeddings = 512;
    run.stages = {{.max_length = 512, .batch = 64, .steps = 100000, .accumulate = 1}};
    run.schedule = {.kind = train::Schedule::kConstant, .learning_rate = 1e-5, .warmup_steps = 0, .points = {}};
    run.log_every_steps = 100;
    run.checkpoint_every_steps = 1000;
  }
  return run;
}

Design convergence_design(Scale scale) {
  return {.runs = "convergence",
          .corpus = book_corpus(scale),
          .seeds = seeds_of(scale),
          .arms = {"none", kScaledSinusoids, "learned", "rope"},
          .run = to_json(masked_lm_run(scale, 10000)),
          .search = rate_search(scale, 1500)};
}

Corpus law_corpus(Scale scale) {
  switch (scale) {
    case Scale::kTiny:
      return {.name = "laws", .files = {"zh_laws/laws_valid.jsonl"}, .tokens = 8000, .valid_fraction = 0.25};
    case Scale::kSmall:
      return {.name = "laws",
              .files = {"zh_laws/laws_train.jsonl", "zh_laws/laws_valid.jsonl"},
              .tokens = 8000,
              .valid_fraction = 0.02};
    default:
      return {.name = "chinese",
              .files = {"zh_pretraining/train.jsonl"},
              .tokens = "vocabs/bert_base_chinese_vocab.txt",
              .valid_fraction = 0.001};
  }
}

Design chinese_design(Scale scale) {
  return {.runs = "chinese",
          .corpus = law_corpus(scale),
          .seeds = seeds_of(scale),
          .arms = {"learned", "rope"},
          .run = to_json(masked_lm_run(scale, 600))};
}

namespace {

constexpr const char* kDivergedAt = "diverged_at_step";

// A comparison that records the training of its runs.
train::CompareReport compare_recorded(const Context& context, const std::string& data_dir, const std::string& directory,
                                      const nlohmann::json& run, train::CompareOptions options) {
  fs::create_directories(fs::path(directory).parent_path());
  options.config_path = directory + ".run.json";
  io::write_file(options.config_path, run.dump(2) + "\n");
  options.data_dir = data_dir;
  options.output_dir = directory;
  std::optional<TrainingRecord> record;
  options.before = [&](const std::string& run_dir, const nlohmann::json& run_file) {
    record.emplace(context, run_dir, run_file);
  };
  options.after = [&](int signal) { record->end(signal == 0); };
  options.note = context.note;
  return train::compare(options, context.progress);
}

// Trains one run by its file unless it is finished. Where rates are searched for, one that diverges is finished,
// without a loss.
struct FileRun {
  std::optional<double> loss;  // held out
  int64_t diverged_at = 0;
  int signal = 0;
};
FileRun train_run_file(const Context& context, const std::string& data_dir, const std::string& directory,
                       nlohmann::json run, uint64_t seed, bool may_diverge) {
  if (run.contains("model")) run["model"].erase("vocab_size");  // comes from the data
  const nlohmann::json kept = finished_outcome(directory, run);
  if (kept.contains(kDivergedAt)) return {.loss = {}, .diverged_at = kept[kDivergedAt]};
  train::PretrainOptions options;
  options.data_dir = data_dir;
  options.seed = seed;
  options.note = context.note;
  std::optional<TrainingRecord> record;
  if (!fs::exists(directory + "/model.safetensors")) record.emplace(context, directory, run);
  try {
    const train::PretrainReport report = train::pretrain_part(directory, run, options, context.progress);
    if (record) record->end(report.signal == 0);
    return {.loss = report.evaluation.loss, .signal = report.signal};
  } catch (const train::Diverged& error) {
    if (!may_diverge) throw;
    if (context.note) context.note(fmt::format("{} has diverged and has no loss: {}", directory, error.what()));
    record->end(true);
    record->keep({{kDivergedAt, error.step}});
    return {.loss = {}, .diverged_at = error.step};
  }
}

// Runs of one arm of a design with one learning rate; without one, with the run file's.
class ArmRuns {
 public:
  ArmRuns(const Context& context, const Design& design, std::string data_dir, std::string arm)
      : context_(context), design_(design), data_dir_(std::move(data_dir)), arm_(std::move(arm)) {}

  // The runs of all seeds with the rate that the design's search chooses, or without one.
  TrainedArms go() const {
    std::optional<double> rate;
    if (!design_.search.is_empty()) {
      const ChosenRate chosen = search_rate(
          context_, design_.search, arm_, [&](double tried) { return tried_short(tried); },
          [&](double tried) { return tried_whole(tried); });
      if (chosen.signal != 0) return {.data_dir = data_dir_, .runs = {}, .signal = chosen.signal};
      rate = chosen.rate;
    }
    return train(whole(rate), design_.seeds);
  }

 private:
  struct Plan {
    std::string directory;
    nlohmann::json run;
    std::vector<int64_t> lengths;
  };

  nlohmann::json run_file(std::optional<double> rate) const {
    nlohmann::json run = design_.run_files.empty() ? design_.run : design_.run_files.at(arm_);
    if (rate) run["schedule"]["learning_rate"] = *rate;
    return run;
  }

  Plan whole(std::optional<double> rate) const {
    const std::string runs = fmt::format("{}/runs/{}", context_.shared_dir, design_.runs);
    return {rate ? fmt::format("{}/{:g}", runs, *rate) : runs, run_file(rate), design_.length_factors};
  }

  TriedRun tried_short(double rate) const {
    if (context_.note) context_.note(fmt::format("{}: a short run at the rate {:g}", arm_, rate));
    Plan plan{fmt::format("{}/runs/{}-rates/{:g}", context_.shared_dir, design_.runs, rate), run_file(rate), {}};
    for (nlohmann::json& stage : plan.run.at("stages")) stage["steps"] = design_.search.steps;
    return tried(plan, design_.search.seed);
  }

  TriedRun tried_whole(double rate) const {
    if (context_.note) context_.note(fmt::format("{}: the first seed at the rate {:g}", arm_, rate));
    return tried(whole(rate), design_.seeds.front());
  }

  // A run whose loss is not finite has no loss.
  TriedRun tried(const Plan& plan, uint64_t seed) const {
    const TrainedArms trained = train(plan, {seed});
    if (trained.signal != 0) return {.signal = trained.signal};
    const train::CompareRun& run = trained.runs.front();
    return {.directory = run.directory, .seed = seed, .loss = held_out_loss(run)};
  }

  TrainedArms train(const Plan& plan, const Seeds& seeds) const {
    return design_.run_files.empty() ? train_encoding(plan, seeds) : train_file(plan, seeds);
  }

  TrainedArms train_encoding(const Plan& plan, const Seeds& seeds) const {
    train::CompareOptions options;
    options.arms = {arm_};
    options.seed = seeds.front();
    options.seeds = std::ssize(seeds);
    options.length_factors = plan.lengths.empty() ? std::vector<int64_t>{1} : plan.lengths;
    train::CompareReport report = compare_recorded(context_, data_dir_, plan.directory, plan.run, options);
    return {.data_dir = data_dir_, .runs = std::move(report.runs), .signal = report.signal};
  }

  TrainedArms train_file(const Plan& plan, const Seeds& seeds) const {
    TrainedArms trained{.data_dir = data_dir_, .runs = {}};
    for (const uint64_t seed : seeds) {
      const std::string directory = fmt::format("{}/{}/seed-{}", plan.directory, arm_, seed);
      if (context_.note) context_.note(fmt::format("{}, seed {}", arm_, seed));
      const bool may_diverge = !design_.search.is_empty();
      const FileRun run = train_run_file(context_, data_dir_, directory, plan.run, seed, may_diverge);
      trained.signal = run.signal;
      if (trained.signal != 0) return trained;
      trained.runs.push_back(
          {.arm = arm_, .seed = seed, .losses = {run.loss}, .diverged_at = run.diverged_at, .directory = directory});
    }
    return trained;
  }

  const Context& context_;
  const Design& design_;
  std::string data_dir_, arm_;
};

}  // namespace

TrainedArms train_arms(const Context& context, const Design& design, std::vector<std::string> arms) {
  if (arms.empty()) {
    arms = design.arms;
    for (const auto& [arm, run] : design.run_files) arms.push_back(arm);
  }
  TrainedArms trained{.data_dir = prepared(context, design.corpus), .runs = {}};
  for (const std::string& arm : arms) {
    TrainedArms of_arm = ArmRuns(context, design, trained.data_dir, arm).go();
    trained.signal = of_arm.signal;
    if (trained.signal != 0) return trained;
    for (train::CompareRun& run : of_arm.runs) {
      log_training(context, run.arm, run.seed, run.directory);
      trained.runs.push_back(std::move(run));
    }
  }
  return trained;
}

double held_out_loss(const train::CompareRun& run) {
  return run.losses.at(0).value_or(std::numeric_limits<double>::infinity());
}

void add_measures(Result& result, const std::vector<train::CompareRun>& runs) {
  for (const train::CompareRun& run : runs) {
    if (run.diverged_at > 0) continue;
    const auto add = [&](const char* name, double value) {
      result.measures.push_back({name, run.arm, run.seed, value});
    };
    add(measures::kHeldOutLoss, held_out_loss(run));
    add(measures::kLateLoss, late_mean(loss_curve(run)));
  }
}

void add_steps(Result& result, const std::vector<train::CompareRun>& runs, const std::string& arm,
               const std::string& baseline, const char* measure) {
  for (const train::CompareRun& own : runs_of(runs, arm)) {
    for (const train::CompareRun& other : runs_of(runs, baseline)) {
      if (other.seed != own.seed || own.diverged_at + other.diverged_at > 0) continue;
      result.measures.push_back({measure, arm, own.seed, steps_ratio(loss_curve(own), loss_curve(other))});
    }
  }
}

Curve loss_curve(const train::CompareRun& run) {
  train::TrainingCurve curve = train::training_curve(run.directory);
  if (run.diverged_at > 0) {
    curve.steps.push_back(run.diverged_at);
    curve.losses.push_back(std::numeric_limits<double>::infinity());
  }
  return {{curve.steps.begin(), curve.steps.end()}, std::move(curve.losses)};
}

Curves loss_curves(const std::vector<train::CompareRun>& runs) {
  Curves curves;
  for (const train::CompareRun& run : runs) curves[run.arm].push_back(loss_curve(run));
  return curves;
}

Losses held_out_losses(const std::vector<train::CompareRun>& runs) {
  Losses losses;
  for (const train::CompareRun& run : runs) losses[run.arm].push_back(held_out_loss(run));
  return losses;
}

std::vector<train::CompareRun> runs_of(const std::vector<train::CompareRun>& runs, const std::string& arm) {
  std::vector<train::CompareRun> chosen;
  for (const train::CompareRun& run : runs) {
    if (run.arm == arm) chosen.push_back(run);
  }
  return chosen;
}

}  // namespace rf::reproduce
