// What the trained experiments share: a corpus that is prepared once (and again if the data change), and comparisons
// (rf/train/compare.h) whose runs are trained once, by the first experiment that needs them.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "curves.h"
#include "experiment.h"
#include "rate_search.h"
#include "rf/train/compare.h"

namespace rf::reproduce {

// In JSON, members that are empty are absent.
struct Corpus {
  std::string name;
  Files files;
  std::variant<int64_t, std::string> tokens;  // "bytes", the size of a vocabulary that is trained on the files, or the
                                              // file of one
  double valid_fraction = 0;
  std::string documents = {};   // as roformer prepare takes them; "": each file
  std::string field = {};       // of a record's text; "": text
  std::string dictionary = {};  // jieba's, whose words whole-word masking masks;
  std::string pipeline = {};    // with "roformer" they are tokens,
  int64_t add_words = 0;        // of which this many, the most frequent, are new to the vocabulary

  Files all_files() const;
};
void to_json(nlohmann::json& json, const Corpus& corpus);

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

// Books in English, and the body of X-03 with a vocabulary of 4096; kPaper: R-CFG-2, BERT-base.
Corpus book_corpus(Scale scale);
train::RunConfig masked_lm_run(Scale scale, int64_t small_steps);
// Chinese laws, with characters as tokens.
Corpus law_corpus(Scale scale);
// The same body on them: BERT's learned table, and rope.
Design chinese_design(Scale scale);
// X-03's: no encoding, BERT's learned table, sinusoids, and rope.
Design convergence_design(Scale scale);
struct TrainedArms {
  std::string data_dir;                 // prepared
  std::vector<train::CompareRun> runs;  // by arm, then seed
  int signal = 0;
};
// Trains the runs of all seeds that are not trained yet, of some arms of the design, if not of all. Those of a rate are
// in <scale>/runs/<runs>/<rate>, those of a design without a search in <scale>/runs/<runs>, and short ones in
// <scale>/runs/<runs>-rates/<rate>. Runs by run file have an arm, a seed, the last held-out loss and a directory; one
// that diverges throws train::Diverged in a design without a search.
TrainedArms train_arms(const Context& context, const Design& design, std::vector<std::string> arms = {});

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
