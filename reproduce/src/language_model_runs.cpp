// Corpus and runs of the trained experiments (language_model_runs.h).
#include "language_model_runs.h"

#include <fmt/format.h>

#include <filesystem>

#include "data_sets.h"
#include "rf/data/prepare.h"
#include "rf/io/files.h"
#include "rf/text/byte_tokenizer.h"
#include "rf/text/vocabulary_trainer.h"
#include "rf/text/word_vocabulary.h"
#include "rf/train/pretrain.h"
#include "rf/train/training_curve.h"

namespace rf::reproduce {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of_corpus(const nlohmann::json& corpus) {
  std::vector<std::string> files = corpus.at("files");
  const nlohmann::json& tokens = corpus.at("tokens");
  if (tokens.is_string() && tokens != "bytes") files.push_back(tokens);
  if (corpus.contains("dictionary")) files.push_back(corpus.at("dictionary"));
  return files;
}

data::ReadOptions inputs(const Context& context, const nlohmann::json& corpus) {
  data::ReadOptions options;
  for (const std::string file : corpus.at("files")) options.inputs.push_back(context.data_dir + "/" + file);
  options.document_rule = data::document_rule(corpus.value("documents", "file"));
  return options;
}

text::Vocabulary vocabulary(const Context& context, const nlohmann::json& corpus) {
  const nlohmann::json& tokens = corpus.at("tokens");
  if (tokens.is_string()) return text::Vocabulary::load(context.data_dir + "/" + tokens.get<std::string>());
  text::VocabularyTrainer trainer({.size = tokens});
  data::DocumentReader(inputs(context, corpus)).read([&](const data::DocumentPart& piece) { trainer.add(piece.text); });
  return trainer.train();
}

text::Tokenizer tokenizer(const Context& context, const nlohmann::json& corpus) {
  if (corpus.at("tokens") == "bytes") return text::byte_tokenizer();
  const text::Vocabulary made = vocabulary(context, corpus);
  const text::Pipeline pipeline = text::pipeline_of_name(corpus.value("pipeline", "bert"));
  if (pipeline == text::Pipeline::kBert) return {made, {}};
  const auto dictionary = text::Dictionary::load(context.data_dir + "/" + corpus.at("dictionary").get<std::string>());
  const text::TokenizerOptions options{.pipeline = pipeline, .dictionary = dictionary};
  if (!corpus.contains("add_words")) return {made, options};
  text::WordVocabularyBuilder words({made, {}}, dictionary);
  data::DocumentReader(inputs(context, corpus)).read([&](const data::DocumentPart& piece) { words.add(piece.text); });
  return {words.build(corpus.at("add_words"), /*min_frequency=*/2).vocabulary, options};
}

// The data directory of a corpus. It is made unless there is one from the same files with the same settings.
std::string prepared(const Context& context, const nlohmann::json& corpus) {
  const std::string directory = fmt::format("{}/corpus/{}", context.shared_dir, corpus.at("name").get<std::string>());
  const std::string mark = directory + "/corpus.json", data_dir = directory + "/data";
  const nlohmann::json made_of = {{"corpus", corpus}, {"data", identity_of(context.data_dir, files_of_corpus(corpus))}};
  if (fs::exists(mark) && io::read_json(mark) == made_of) return data_dir;
  if (context.note) context.note(fmt::format("preparing {}", directory));
  const std::string model_dir = directory + "/vocabulary";
  fs::create_directories(model_dir);
  tokenizer(context, corpus).save(model_dir);
  if (corpus.contains("dictionary")) {  // where prepare looks for it
    fs::copy_file(context.data_dir + "/" + corpus.at("dictionary").get<std::string>(), model_dir + "/dict.txt",
                  fs::copy_options::overwrite_existing);
  }
  data::prepare({.input = inputs(context, corpus),
                 .model_dir = model_dir,
                 .words = corpus.contains("dictionary") ? data::WordRule::kJieba : data::WordRule::kTokenizer,
                 .output_dir = data_dir,
                 .valid_fraction = corpus.at("valid_fraction")},
                context.progress);
  io::write_file(mark, made_of.dump(2) + "\n");
  return data_dir;
}

}  // namespace

nlohmann::json book_corpus(Scale scale) {
  switch (scale) {
    case Scale::kTiny:
      return {{"name", "books"}, {"files", {"en_books/books_valid.jsonl"}}, {"tokens", 4096}, {"valid_fraction", 0.25}};
    case Scale::kSmall:
      return {{"name", "books"},
              {"files", {"en_books/books_train.jsonl", "en_books/books_valid.jsonl"}},
              {"tokens", 4096},
              {"valid_fraction", 0.05}};
    default:  // BookCorpus and Wikipedia, 8 parts to 2
      return {{"name", "pretraining"},
              {"files", {"en_pretraining/train.jsonl"}},
              {"tokens", "vocabs/bert_base_uncased_vocab.txt"},
              {"valid_fraction", 0.2}};
  }
}

nlohmann::json masked_lm_run(Scale scale, int64_t small_steps) {
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
  return to_json(run);
}

nlohmann::json convergence_design(Scale scale) {
  return {{"runs", "convergence"},
          {"corpus", book_corpus(scale)},
          {"arms", {"learned", "sinusoidal", "rope"}},
          {"seeds", seeds_of(scale)},
          {"run", masked_lm_run(scale, 600)}};
}

nlohmann::json law_corpus(Scale scale) {
  switch (scale) {
    case Scale::kTiny:
      return {{"name", "laws"}, {"files", {"zh_laws/laws_valid.jsonl"}}, {"tokens", 8000}, {"valid_fraction", 0.25}};
    case Scale::kSmall:
      return {{"name", "laws"},
              {"files", {"zh_laws/laws_train.jsonl", "zh_laws/laws_valid.jsonl"}},
              {"tokens", 8000},
              {"valid_fraction", 0.02}};
    default:
      return {{"name", "chinese"},
              {"files", {"zh_pretraining/train.jsonl"}},
              {"tokens", "vocabs/bert_base_chinese_vocab.txt"},
              {"valid_fraction", 0.001}};
  }
}

nlohmann::json chinese_design(Scale scale) {
  return {{"runs", "chinese"},
          {"corpus", law_corpus(scale)},
          {"arms", {"learned", "rope"}},
          {"seeds", seeds_of(scale)},
          {"run", masked_lm_run(scale, 600)}};
}

nlohmann::json files_of_design(const nlohmann::json& design) {
  return files_of_corpus(design.at("corpus"));
}

TrainedArms train_arms(const Context& context, const nlohmann::json& design) {
  TrainedArms trained{.data_dir = prepared(context, design.at("corpus")), .runs = {}};
  const std::string directory = fmt::format("{}/runs/{}", context.shared_dir, design.at("runs").get<std::string>());
  fs::create_directories(fs::path(directory).parent_path());
  const std::string run_file = directory + ".run.json";
  io::write_file(run_file, design.at("run").dump(2) + "\n");
  const train::CompareReport report =
      train::compare({.arms = design.at("arms"),
                      .data_dir = trained.data_dir,
                      .output_dir = directory,
                      .config_path = run_file,
                      .seed = design.at("seeds")[0].get<uint64_t>(),
                      .seeds = static_cast<int64_t>(design.at("seeds").size()),
                      .length_factors = design.value("length_factors", std::vector<int64_t>{1}),
                      .note = context.note},
                     context.progress);
  trained.runs = report.runs;
  trained.signal = report.signal;
  return trained;
}

TrainedArms train_run_files(const Context& context, const nlohmann::json& design) {
  TrainedArms trained{.data_dir = prepared(context, design.at("corpus")), .runs = {}};
  for (const auto& [arm, run_file] : design.at("run_files").items()) {
    for (const uint64_t seed : design.at("seeds")) {
      const std::string directory =
          fmt::format("{}/runs/{}/{}/seed-{}", context.shared_dir, design.at("runs").get<std::string>(), arm, seed);
      fs::create_directories(directory);
      nlohmann::json run = run_file;
      run.at("model").erase("vocab_size");  // comes from the data
      io::write_file(directory + ".run.json", run.dump(2) + "\n");
      if (context.note) context.note(fmt::format("{}, seed {}", arm, seed));
      const train::PretrainReport report = train::pretrain({.config_path = directory + ".run.json",
                                                            .data_dir = trained.data_dir,
                                                            .output_dir = directory,
                                                            .resume = true,
                                                            .seed = seed,
                                                            .note = context.note},
                                                           context.progress);
      trained.signal = report.signal;
      if (trained.signal != 0) return trained;
      trained.runs.push_back({.arm = arm, .seed = seed, .losses = {report.evaluation.loss}, .directory = directory});
    }
  }
  return trained;
}

Curve loss_curve(const train::CompareRun& run) {
  train::TrainingCurve curve = train::training_curve(run.directory);
  return {{curve.steps.begin(), curve.steps.end()}, std::move(curve.losses)};
}

Curves loss_curves(const std::vector<train::CompareRun>& runs) {
  Curves curves;
  for (const train::CompareRun& run : runs) curves[run.arm].push_back(loss_curve(run));
  return curves;
}

Losses held_out_losses(const std::vector<train::CompareRun>& runs) {
  Losses losses;
  for (const train::CompareRun& run : runs) losses[run.arm].push_back(run.losses.at(0).value());
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
