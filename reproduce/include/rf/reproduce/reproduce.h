// The papers' experiments as a program: each claim of the RoFormer paper, and of publications about it, that a machine
// can judge is a named experiment with its design, data and expected outcome fixed beforehand.
// Free of torch. docs/reproduce.md describes the output for users.
//
// The output directory holds register.json (the claims, and the papers' tables) and, for each scale, including "any"
// for experiments whose settings do not depend on it,
//
//   <scale>/<experiment>/result.json     written when the experiment is finished
//   <scale>/corpus/<name>/               vocabulary and token shards that trained experiments share
//   <scale>/runs/<name>/                 comparisons (rf/train/compare.h) that they share, where learning rates are
//                                        searched for one for each rate, <name>/<rate>/; beside each run directory
//                                        <run>.training.json, the record of its training
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rf/io/progress.h"

namespace rf::reproduce {

// kTiny: every pipeline from end to end, one seed, no conclusions. kSmall: the designs for 2 cores, three seeds.
// kPaper: published hyperparameters.
enum class Scale { kTiny, kSmall, kPaper };
Scale scale_of_name(const std::string& name);  // "tiny", "small", "paper"; throws Error otherwise
const char* name_of(Scale scale);

struct Options {
  std::vector<std::string> names;  // of experiments, or "all" alone
  Scale scale = Scale::kTiny;
  std::string output_dir;
  std::string data_dir;             // "": only experiments without data
  std::string command;              // as the user gave it, for the record
  std::string machine_json = "{}";  // facts about the machine, for the record
  std::function<void(const std::string&)> note;
};

// Every experiment as an object: name, spec, title, claims, scale (this one, or "any"), expected, budget, kind, hours
// (of scale small; 0: minutes), exceptions (of scale paper), operations (floating-point, of pretraining), data (the
// files it needs).
std::vector<nlohmann::json> experiments(Scale scale);

struct Report {
  int64_t done = 0, missing_data = 0;
  int signal = 0;  // SIGINT or SIGTERM if one ended a training run, after a checkpoint; the same call continues there
};

// Calls `result` for each experiment in the order of the table: an object with name, scale, verdicts, seconds, and
// "kept", true if there was a result with the same settings; or with name, scale and missing_data. Throws Error, before
// anything is run, for an unknown name, and for a named experiment whose data are missing; with "all" those are
// skipped.
Report reproduce(const Options& options, io::Progress& progress,
                 const std::function<void(const nlohmann::json&)>& result);

// Judges the stored results of options.output_dir by the rules as they are, without running anything, and rewrites
// register.json. Calls `result` for each, as reproduce() does. Throws Error if the directory has no register.json.
void judge_again(const Options& options, const std::function<void(const nlohmann::json&)>& result);

}  // namespace rf::reproduce
