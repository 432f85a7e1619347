// What the trained experiments share: a corpus that is prepared once (and again if the data change), and comparisons
// (rf/train/compare.h) whose runs are trained once, by the first experiment that needs them. A design is a JSON object
// that is part of an experiment's settings:
//
//   runs             name of the directory <scale>/runs/<runs>
//   corpus           {name, files, tokens, valid_fraction}; tokens: "bytes", the size of a vocabulary that is trained
//                    on the files, or the file of one; "documents": as roformer prepare takes them. "dictionary":
//                    jieba's, whose words whole-word masking masks; with "pipeline": "roformer" they are tokens,
//                    "add_words" of them, the most frequent, being new to the vocabulary
//   seeds            rising by one
//   arms, run        encodings, as roformer compare takes them, and the run file (docs/pretraining.md) of them all;
//                    "length_factors": held-out loss at these multiples of the training length, too
//   run_files        in place of both: a run file for each arm
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiment.h"
#include "judgement.h"
#include "rf/train/compare.h"

namespace rf::reproduce {

// Books in English, and the body of X-03 with a vocabulary of 4096; kPaper: R-CFG-2, BERT-base.
nlohmann::json book_corpus(Scale scale);
nlohmann::json masked_lm_run(Scale scale, int64_t small_steps);
// Chinese laws, with characters as tokens.
nlohmann::json law_corpus(Scale scale);
// The same body on them: BERT's learned table, and rope.
nlohmann::json chinese_design(Scale scale);
// X-03's: BERT's learned table, sinusoids, and rope.
nlohmann::json convergence_design(Scale scale);
// The files that a design reads, for "files" of the settings.
nlohmann::json files_of_design(const nlohmann::json& design);

struct TrainedArms {
  std::string data_dir;                 // prepared
  std::vector<train::CompareRun> runs;  // by arm, then seed
  int signal = 0;
};
// Train the runs that are not trained yet, by encoding or by run file. The latter's runs have an arm, a seed, the last
// held-out loss and a directory.
TrainedArms train_arms(const Context& context, const nlohmann::json& design);
TrainedArms train_run_files(const Context& context, const nlohmann::json& design);

Curve loss_curve(const train::CompareRun& run);
Curves loss_curves(const std::vector<train::CompareRun>& runs);
Losses held_out_losses(const std::vector<train::CompareRun>& runs);  // at the training length
// The losses of one arm.
std::vector<train::CompareRun> runs_of(const std::vector<train::CompareRun>& runs, const std::string& arm);

}  // namespace rf::reproduce
