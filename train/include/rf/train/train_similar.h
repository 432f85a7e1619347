// Training on pairs of similar texts, as for SimBERT and RoFormer-Sim (kexue.fm/archives/7427, kexue.fm/archives/8454;
// R-VAR-06). A prefix language model learns to generate each text of a pair from the other, and its pooler's vectors of
// the first tokens learn to be more similar within a pair than to other texts of the batch. Free of torch.
//
// The output directory is a model directory, with run.json (the settings), metrics.jsonl, and report.json when the run
// is finished; until then, its newest checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rf/data/reader.h"
#include "rf/io/progress.h"
#include "rf/text/tokenizer.h"
#include "rf/train/run_config.h"

namespace rf::train {

struct SimilarTraining {
  std::string model_dir, output_dir;
  std::vector<std::string> pairs;  // records with the columns text and pair
  std::vector<std::string> valid;  // records with a number in the column label; may be empty
  std::map<std::string, std::string> columns = {{"text", "text"}, {"pair", "pair"}, {"label", "label"}};
  std::string label;  // only records of `pairs` with this label; "": all
  data::Format format = data::Format::kAuto;
  data::Quotes quotes = data::Quotes::kRead;
  text::LoadOptions load;

  int64_t epochs = 1, batch = 48;  // pairs of a step, each in both directions
  int64_t max_length = 64;         // tokens of a text; a row has at most twice as many
  double mask = 0.5;               // fraction of rows whose first text gets masked words, 15 % each
  double learning_rate = 1e-5;
  Schedule schedule = Schedule::kConstant;
  double warmup = 0;  // part of the steps
  double weight_decay = 0.01, clip_norm = 1;
  Precision precision = Precision::kBfloat16;
  uint64_t seed = 1;
  std::function<void(const std::string&)> note;  // receives messages for the user; may be empty
};

struct SimilarTrainingReport {
  int64_t steps = 0, pairs = 0;
  double generation_loss = 0, similarity_loss = 0;  // of the last line of the metrics
  double spearman = 0;                              // of the last evaluation; NaN without
  int signal = 0;                                   // SIGINT or SIGTERM when one was received; the same call continues
  bool is_complete = false;                         // whether or not a signal came in the last step
};

// Throws Error, naming file and line, for records without the fields, fewer pairs than a batch, settings that differ
// from the run in the output directory, and a loss that is not finite. A finished run is not trained again.
SimilarTrainingReport train_similar(const SimilarTraining& options, io::Progress& progress);

}  // namespace rf::train
