// The laboratory: trains the same body with one position encoding after another on the same data, in the same order,
// from the same seeds, and measures what each costs and gives. Free of torch.
//
// The output directory holds compare.json (the settings), a directory an arm with a run directory a seed
// (<arm>/seed-<n>/, see pretrain.h, with result.json when it is done), and at the end table.csv, table.md and
// table.svg.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rf/io/progress.h"
#include "rf/model/encoding_config.h"
#include "rf/train/run_config.h"

namespace rf::train {

// An arm as the command line writes it: "rope", or a name with its keys, "shaw:max_relative_position=64:values=false".
// Values are JSON; what is none is a string. Commas and colons inside brackets and quotes are the value's. Throws Error
// for an empty name and for a key without a value or given twice.
EncodingConfig parse_arm(const std::string& text);
// "none,rope,t5" -> the arms.
std::vector<std::string> split_arms(const std::string& text);

struct CompareOptions {
  std::vector<std::string> arms;  // at least one, no two alike
  std::string data_dir, output_dir;
  std::string config_path;                          // run file; "": compare_defaults()
  std::optional<uint64_t> seed;                     // the first seed, in place of the run file's
  int64_t seeds = 3;                                // each arm is trained with this many seeds: the first, the next, ..
  std::vector<int64_t> length_factors = {1, 2, 4};  // held-out loss at these multiples of the training length
  std::function<void(const std::string&)> note;
};

// A body of 4 layers of 128: 400 steps of 32 x 128 tokens.
RunConfig compare_defaults();

// One run: an arm with a seed. A length that the encoding cannot read (a learned table's end) has no loss.
struct CompareRun {
  std::string arm;
  uint64_t seed = 0;
  int64_t parameters = 0;
  double step_ms = 0;      // median over the log intervals
  int64_t peak_bytes = 0;  // of tensors alive at once while the run was trained: weights, moments, activations
  std::vector<std::optional<double>> losses;  // held out, nats a predicted token, one for each length factor
  std::string directory = {};                 // of the run
};

struct CompareReport {
  std::vector<CompareRun> runs;  // by arm, then seed
  std::vector<int64_t> lengths;  // tokens, one for each length factor
  std::string table;             // Markdown
  int signal = 0;  // SIGINT or SIGTERM when one ended the comparison early; call again with the same options
};

// Every arm is checked before the first is trained. Runs that are done are not repeated, one that was interrupted goes
// on at its newest checkpoint. Throws Error when the output directory holds another comparison (the settings differ).
CompareReport compare(const CompareOptions& options, io::Progress& progress);

}  // namespace rf::train
