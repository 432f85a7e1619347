// What the trained experiments share: a corpus that is prepared once, and comparisons (rf/train/compare.h) whose runs
// are trained once, whoever asks for them first. A design is a JSON object that is part of an experiment's settings:
//
//   runs             name of the directory <scale>/runs/<runs>
//   corpus           {name, files, vocabulary_size (of a vocabulary trained on them) or vocabulary (a file),
//                     valid_fraction}
//   arms             encodings, as roformer compare takes them
//   seeds            rising by one
//   run              a run file (docs/pretraining.md)
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
// X-03's: BERT's learned table, sinusoids, and rope.
nlohmann::json convergence_design(Scale scale);
// The files that a design reads, for "files" of the settings.
nlohmann::json files_of_design(const nlohmann::json& design);

struct TrainedArms {
  std::string data_dir;                 // prepared
  std::vector<train::CompareRun> runs;  // by arm, then seed
  int signal = 0;
};
// Trains what is not trained yet.
TrainedArms train_arms(const Context& context, const nlohmann::json& design);

Curve loss_curve(const train::CompareRun& run);
Curves loss_curves(const std::vector<train::CompareRun>& runs);
Losses held_out_losses(const std::vector<train::CompareRun>& runs);  // at the training length
// Those of one arm.
std::vector<train::CompareRun> runs_of(const std::vector<train::CompareRun>& runs, const std::string& arm);

}  // namespace rf::reproduce
