// The comparison of encodings: trains the same body with each of several position encodings on the same data, in the
// same order, from the same seeds, and measures the cost and the loss of each. Free of torch.
//
// The output directory holds compare.json (the settings), one directory per arm with one run directory per seed
// (<arm>/seed-<n>/, see pretrain.h, with result.json when it is finished), and at the end table.csv and table.md.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rf/io/progress.h"
#include "rf/model/config.h"

namespace rf::train {

// An arm from the command line: "rope", or a name with its keys, "shaw:max_relative_position=64:values=false". Values
// are JSON, otherwise strings. Commas and colons inside brackets and quotes belong to the value. Throws Error for an
// empty name and for a key without a value or given twice.
EncodingConfig parse_arm(const std::string& text);
// "none,rope,t5" -> the arms.
std::vector<std::string> split_arms(const std::string& text);

inline constexpr const char* kEveryEncoding = "all";

// One run: an arm with a seed. Lengths that the encoding cannot read (beyond a learned table) lack a loss.
struct CompareRun {
  std::string arm;
  uint64_t seed = 0;
  int64_t parameters = 0;
  double step_ms = 0;      // median over the log intervals
  int64_t peak_bytes = 0;  // of tensors that existed at the same time in training: weights, moments, activations
  std::vector<std::optional<double>> losses;  // held out, nats per predicted token, one for each length factor
  int64_t diverged_at = 0;                    // the step whose loss or gradient was not finite: no length has a loss
  std::string directory = {};                 // of the run
  double seconds = 0;                         // of its steps
  int64_t tokens = 0;                         // of its steps, without padding
};

struct CompareOptions {
  // At least one, all different. kEveryEncoding: every encoding that the run file's model supports, with its default
  // keys; the others are reported through the notes.
  std::vector<std::string> arms;
  std::string data_dir, output_dir;
  std::string config_path;  // run file; "": a body of 4 layers of 128, 400 steps of 32 x 128 tokens
  std::vector<std::string> overrides = {};             // as of PretrainOptions
  std::optional<uint64_t> seed;                        // the first seed, in place of the run file's
  int64_t seeds = 3;                                   // each arm is trained with this many consecutive seeds
  std::vector<int64_t> length_factors = {1, 2, 4, 8};  // held-out loss at these multiples of the training length
  // Called before each training run, with its directory and run file, and after it, even if a signal ended it.
  std::function<void(const std::string& directory, const nlohmann::json& run)> before = {};
  std::function<void(bool is_complete)> after = {};
  // Called when a run has its held-out losses, before it counts as finished.
  std::function<void(const CompareRun& run)> measured = {};
  std::string device = "auto";  // as in rf/train/device.h
  std::function<void(const std::string&)> note;
};

struct CompareReport {
  std::vector<CompareRun> runs;                            // by arm, then seed
  std::vector<int64_t> lengths;                            // tokens, one for each length factor
  std::vector<std::optional<double>> unigram_losses = {};  // of token frequencies, on the same tokens
  std::string table;                                       // Markdown
  int signal = 0;  // SIGINT or SIGTERM when one ended the comparison early; call again with the same options
};

// Every arm is checked before the first is trained. A run that diverges ends there, and the other runs continue.
// Finished runs are not repeated, and an interrupted run continues from its newest checkpoint. Throws Error if the
// output directory holds a comparison with other settings.
CompareReport compare(const CompareOptions& options, io::Progress& progress);

}  // namespace rf::train
