// What the trained experiments share: comparisons (rf/train/compare.h) whose runs are trained once, by the first
// experiment that needs them.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "corpus.h"
#include "curves.h"
#include "experiment.h"
#include "rate_search.h"
#include "rf/train/compare.h"

namespace rf::reproduce {

// Runs to train: with each of several encodings, or with a run file (docs/pretraining.md) for each arm. In JSON,
// members that are empty are absent.
struct Design {
  std::string runs;  // name of the directory <scale>/runs/<runs>
  Corpus corpus;
  Seeds seeds;                               // rising by one
  std::vector<std::string> arms = {};        // encodings, as roformer compare takes them,
  nlohmann::json run = {};                   // the run file of them all,
  std::vector<int64_t> length_factors = {};  // and held-out loss at these multiples of the training length, too
  std::map<std::string, nlohmann::json> run_files = {};  // in place of the three
  RateSearch search = {};
};
void to_json(nlohmann::json& json, const Design& design);

// Settings of an experiment that trains the runs of a design.
struct Trained {
  Design design;
};
void to_json(nlohmann::json& json, const Trained& settings);

// The body of X-03; kPaper: R-CFG-2, BERT-base.
train::RunConfig masked_lm_run(Scale scale, int64_t small_steps);
// A run file of a causal model of bytes, with attention and encoding as config.json has them; kPaper: R-CFG-4.
struct ByteRows {
  int64_t tokens, batch;
};
nlohmann::json byte_run(Scale scale, const nlohmann::json& encoding, const nlohmann::json& attention, ByteRows small,
                        int64_t small_steps);
// The body of X-03 on Chinese laws: BERT's learned table, and rope.
Design chinese_design(Scale scale);
// X-03's: no encoding, BERT's learned table, sinusoids, and rope.
Design convergence_design(Scale scale);

// What an experiment reads of the weights of a whole run, taken when the run ends and kept in its record: a process
// that has the records of earlier ones, and not their weights, goes on from there.
struct WeightsReading {
  std::string name;         // the experiment's
  nlohmann::json settings;  // one with others is taken again
  std::function<nlohmann::json(const train::CompareRun& run, const std::string& data_dir)> take;
};

struct TrainedArms {
  std::string data_dir;                 // prepared
  std::vector<train::CompareRun> runs;  // by arm, then seed
  int signal = 0;
  std::map<std::string, nlohmann::json> readings = {};  // by directory; null without a reading, or if it diverged
};
// Trains the runs of all seeds that are not trained yet, of some arms of the design, if not of all. Those of a rate are
// in <scale>/runs/<runs>/<rate>, those of a design without a search in <scale>/runs/<runs>, and short ones in
// <scale>/runs/<runs>-rates/<rate>. Runs by run file have an arm, a seed, the last held-out loss and a directory; one
// that diverges throws train::Diverged in a design without a search. Throws Error if a run has neither weights nor the
// reading.
TrainedArms train_arms(const Context& context, const Design& design, std::vector<std::string> arms = {},
                       const WeightsReading* reading = nullptr);

// At the training length; infinite if the run has diverged.
double held_out_loss(const train::CompareRun& run);
// Measures of each run but those that have diverged: held-out loss, late training loss.
void add_measures(Result& result, const std::vector<train::CompareRun>& runs);
// The steps of runs of `arm` to the training loss that both reach, of those of the baseline's run of the same seed.
void add_steps(Result& result, const std::vector<train::CompareRun>& runs, const std::string& arm,
               const std::string& baseline, const char* measure);

// The curve of a run that has diverged ends with an infinite loss.
Curve loss_curve(const train::CompareRun& run);
Curves loss_curves(const std::vector<train::CompareRun>& runs);
Losses held_out_losses(const std::vector<train::CompareRun>& runs);  // at the training length
// The losses of one arm.
std::vector<train::CompareRun> runs_of(const std::vector<train::CompareRun>& runs, const std::string& arm);

}  // namespace rf::reproduce
