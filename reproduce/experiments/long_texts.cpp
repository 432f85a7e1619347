// X-08 (C-16, C-22; the paper's Table 5): which of two judgments is like a third, by 128 tokens of the pair and by 256,
// with BERT's learned table (which ends at the 128 it was pretrained on) and with RoPE. Training triples are two
// judgments of one cause of action and one of another cause, and those of CAIL2019-SCM whose documents are in no other
// part; they are tested on triples of other judgments, and on SCM's of other documents. Characters are tokens.
#include <fmt/format.h>

#include <set>

#include "experiment.h"
#include "language_model_runs.h"
#include "rf/data/random.h"
#include "rf/tasks/predict.h"
#include "statistics.h"
#include "tuned_models.h"

namespace rf::reproduce {

namespace {

constexpr const char* kDocuments = "cjrc_legal_docs/cjrc_docs.jsonl";
constexpr const char* kScmDocuments = "cail2019_scm/docs.jsonl";
constexpr const char* kScmTriples = "cail2019_scm/triples.tsv";

struct Counts {
  int64_t train, valid, test;
  RF_MEMBERS(Counts, train, valid, test)
};

struct TunedArm {
  std::string name, encoding;
  int64_t max_length;
  RF_MEMBERS(TunedArm, name, encoding, max_length)
};

struct LongTextsSettings {
  Files files = {};
  Seeds seeds = {};
  Design design;
  TunedTask task = {.name = "triples", .task = "triples", .metric = "accuracy"};
  Counts triples;
  Tuning tuning;  // and the length of each arm
  std::vector<TunedArm> arms;
  std::vector<int64_t> read_at;
  RF_MEMBERS(LongTextsSettings, files, seeds, design, task, triples, tuning, arms, read_at)
};

struct CourtRuling {
  std::string domain, cause, text;
};

// Triples of documents: A, one of its cause, and one of the same domain with another cause, in an order that is drawn.
std::vector<nlohmann::json> same_cause_triples(const std::vector<CourtRuling>& documents, int64_t count,
                                               uint64_t seed) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> by_cause;
  for (size_t i = 0; i < documents.size(); ++i) by_cause[{documents[i].domain, documents[i].cause}].push_back(i);
  std::map<std::string, std::vector<size_t>> by_domain;
  std::vector<size_t> anchors;
  for (size_t i = 0; i < documents.size(); ++i) {
    by_domain[documents[i].domain].push_back(i);
    if (by_cause[{documents[i].domain, documents[i].cause}].size() > 1) anchors.push_back(i);
  }
  std::vector<nlohmann::json> triples;
  // A draw without a matching document is repeated.
  for (int64_t i = 0; static_cast<int64_t>(triples.size()) < count && !anchors.empty() && i < 100 * count; ++i) {
    const data::PhiloxBlock words = data::draw(seed, data::Stream::kExampleOrder, static_cast<uint32_t>(i), 0, 0);
    const auto one_of = [](const std::vector<size_t>& indices, uint32_t word) {
      return indices[static_cast<size_t>(data::scale_to(word, static_cast<int64_t>(indices.size())))];
    };
    const size_t anchor = one_of(anchors, words[0]);
    const CourtRuling& a = documents[anchor];
    const size_t alike = one_of(by_cause[{a.domain, a.cause}], words[1]), other = one_of(by_domain[a.domain], words[2]);
    if (alike == anchor || documents[other].cause == a.cause) continue;
    const bool is_b = words[3] % 2 == 0;
    triples.push_back({{"A", a.text},
                       {is_b ? "B" : "C", documents[alike].text},
                       {is_b ? "C" : "B", documents[other].text},
                       {"label", is_b ? "B" : "C"}});
  }
  return triples;
}

// SCM's triples with all documents of that side.
std::vector<nlohmann::json> scm_triples(const Context& context, const std::string& side) {
  std::map<std::string, std::string> texts;
  read_set(context, kScmDocuments, data::Quotes::kRead,
           [&](data::Record& record) { texts[record.text("doc")] = record.text("text"); });
  std::vector<nlohmann::json> triples;
  read_set(context, kScmTriples, data::Quotes::kRead, [&](data::Record& record) {
    if (record.text("doc_side") != side) return;
    nlohmann::json triple = {{"label", record.text("label")}};
    for (const char* name : {"A", "B", "C"}) triple[name] = texts.at(record.text(name));
    triples.push_back(std::move(triple));
  });
  return triples;
}

struct CourtRulings {
  std::vector<CourtRuling> train, valid, test;
};

// Of the judgments of the training part that have one cause, every fifth pair is for choosing the epoch: pairs, because
// a judgment alone has none that is like it. A text that is in several parts is left out of the training ones.
CourtRulings read_rulings(const Context& context) {
  CourtRulings all;
  std::map<std::pair<std::string, std::string>, int64_t> seen;  // by domain and cause
  read_set(context, kDocuments, data::Quotes::kRead, [&](data::Record& record) {
    const CourtRuling ruling{record.text("domain"), record.text("cause"), record.text("text")};
    if (record.text("split") == "test") return all.test.push_back(ruling);
    const int64_t pair = seen[{ruling.domain, ruling.cause}]++ / 2;
    (pair % 5 == 2 ? all.valid : all.train).push_back(ruling);
  });
  const auto erase_texts_of = [](std::vector<CourtRuling>& from, const std::vector<CourtRuling>& others) {
    std::set<std::string> texts;
    for (const CourtRuling& other : others) texts.insert(other.text);
    std::erase_if(from, [&](const CourtRuling& ruling) { return texts.contains(ruling.text); });
  };
  erase_texts_of(all.valid, all.test);
  erase_texts_of(all.train, all.test);
  erase_texts_of(all.train, all.valid);
  return all;
}

TaskRecords records(const Context& context, const Counts& counts) {
  const auto [train, valid, test] = read_rulings(context);
  TaskRecords records{.train = same_cause_triples(train, counts.train, 1),
                      .valid = same_cause_triples(valid, counts.valid, 2),
                      .test = same_cause_triples(test, counts.test, 3)};
  for (nlohmann::json& triple : scm_triples(context, "train")) records.train.push_back(std::move(triple));
  return records;
}

// R-CFG-6 at scale paper.
LongTextsSettings long_texts_settings(Scale scale) {
  const bool is_paper = scale == Scale::kPaper;
  const int64_t shorter = is_paper ? 512 : 128;
  LongTextsSettings settings{
      .design = chinese_design(scale),
      .triples = {.train = by_scale(scale, 64, 20000),
                  .valid = by_scale(scale, 16, 300),
                  .test = by_scale(scale, 64, 1000)},
      .tuning = {.epochs = 1, .batch = 16, .learning_rates = tuning_rates(scale)},
      .arms = {{"BERT", "learned", shorter}, {"RoFormer", "rope", shorter}, {"RoFormer", "rope", 2 * shorter}},
      .read_at = {128, 256, 512}};
  if (is_paper) settings.tuning = {.epochs = 20, .batch = 4, .learning_rates = {6e-6}};
  if (scale != Scale::kTiny) settings.read_at.insert(settings.read_at.end(), {1024, 1536});
  settings.files = settings.design.corpus.all_files();
  for (const char* file : {kDocuments, kScmDocuments, kScmTriples}) settings.files.push_back(file);
  settings.seeds = settings.design.seeds;
  return settings;
}

double accuracy_on(const Context& context, const std::string& model_dir, const std::string& file, int64_t length) {
  tasks::PredictOptions options;
  options.model_dir = model_dir;
  options.input.inputs = {file};
  options.max_length = length;
  return tasks::evaluate(options, context.progress).at("accuracy");
}

struct Arm {
  std::vector<double> accuracies, on_scm, on_train;  // by seed
};

Result run_long_texts(const LongTextsSettings& settings, const Context& context) {
  const TrainedArms bodies = train_arms(context, settings.design);
  if (bodies.signal != 0) return {.columns = {}, .rows = {}, .signal = bodies.signal};
  const train::TaskFiles files = task_files(context,
                                            {"triples",
                                             {{"triples", settings.triples}, {"valid", "every fifth pair of a cause"}},
                                             {kDocuments, kScmDocuments, kScmTriples}},
                                            [&] { return records(context, settings.triples); });
  const train::TaskFiles scm = task_files(context, {"scm", "test", {kScmDocuments, kScmTriples}}, [&] {
    return TaskRecords{.train = {}, .valid = {}, .test = scm_triples(context, "test")};
  });
  Result result{.columns = {"model", "tokens", "accuracy", "lowest", "highest", "bag of words", "on SCM", "lowest",
                            "highest", "training records"},
                .rows = {}};
  std::vector<Arm> arms;
  for (const auto& [model, encoding, length] : settings.arms) {
    Arm& arm = arms.emplace_back();
    Tuning tuning = settings.tuning;
    tuning.max_length = length;
    ArmTuner tuner(context, settings.task, tuning, files);
    double bag_of_words = 0;
    for (const train::CompareRun& body : runs_of(bodies.runs, encoding)) {
      if (context.note) context.note(fmt::format("{} at {}, seed {}", model, length, body.seed));
      const std::string directory =
          fmt::format("{}/runs/long-texts/{}-{}/seed-{}", context.shared_dir, model, length, body.seed);
      const TunedBody own{fmt::format("{} at {}", model, length), body.directory, directory, body.seed};
      Tuned tuned;
      for (const TunedBody& each : {random_body(context, own), own}) {
        tuned = tuner.tune(each);
        if (tuned.signal != 0) return {.columns = {}, .rows = {}, .signal = tuned.signal};
        add_tuned(result, "triples, accuracy", each, tuned);
      }
      bag_of_words = tuned.bag_of_words;
      arm.accuracies.push_back(tuned.model);
      arm.on_train.push_back(tuned.train);
      arm.on_scm.push_back(accuracy_on(context, directory, scm.test.front(), length));
      if (arms.size() < settings.arms.size()) continue;
      // The last arm's model also reads other lengths than it was tuned at.
      Series series{fmt::format("{} tuned at {}, seed {}", model, length, body.seed), {}, {}};
      for (const int64_t other : settings.read_at) {
        series.x.push_back(static_cast<double>(other));
        series.y.push_back(other == length ? tuned.model : accuracy_on(context, directory, files.test.front(), other));
      }
      result.series.push_back(std::move(series));
    }
    const Spread own = spread(arm.accuracies), on_scm = spread(arm.on_scm);
    result.rows.push_back({model, length, own.mean, own.low, own.high, bag_of_words, on_scm.mean, on_scm.low,
                           on_scm.high, spread(arm.on_train).mean});
  }
  return result;
}

}  // namespace

Experiment long_texts() {
  return {.name = "long-texts",
          .spec = "X-08",
          .title = "Does RoFormer gain by reading more of long texts? (Table 5)",
          .claims = {"C-16", "C-22"},
          .expected =
              "C-16: RoFormer's accuracy is higher at 256 tokens than at 128 by at least one point. C-22: RoFormer's "
              "at 128 "
              "is that of BERT, within two points to either side, and at 256 it is higher than at 128 by at least one.",
          .budget = "2 minutes for each of 6 models, 3 arms of 10 tunings of 6 minutes",
          .method = {long_texts_settings, run_long_texts},
          .revision = 5,
          .hours = 3.2,
          .exceptions = {
              "triples of judgments, and those of CAIL2019-SCM on one side of a split of its documents, where the "
              "paper has 8,964 triples in parts of 6 to 2 to 2",
              "bodies pretrained on --data from random weights"}};
}

}  // namespace rf::reproduce
