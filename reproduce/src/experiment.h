// An experiment: what is claimed, what is expected, how it is measured. Each is one file of experiments/ and one line
// of table.cpp.
//
// Everything that determines the numbers is in its settings, a struct that depends on the scale alone, or on nothing if
// the experiment is mathematics or counting and takes seconds. The function that measures reads nothing else, and a
// result is valid while the settings, as JSON, are the same. Members with a meaning for all: `seeds`, the random seeds
// (absent if nothing is drawn), and `files`, the data it reads, relative to --data.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/io/progress.h"
#include "rf/reproduce/reproduce.h"
#include "verdict.h"

// The JSON of a struct in which it stands: the named members.
#define RF_MEMBERS(Type, ...)                                                         \
  friend void to_json(nlohmann::json& nlohmann_json_j, const Type& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))          \
  }
// The same, after those of its base.
#define RF_MEMBERS_AND(Base, Type, ...)                                               \
  friend void to_json(nlohmann::json& nlohmann_json_j, const Type& nlohmann_json_t) { \
    to_json(nlohmann_json_j, static_cast<const Base&>(nlohmann_json_t));              \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))          \
  }

namespace rf::reproduce {

using Seeds = std::vector<uint64_t>;
using Files = std::vector<std::string>;

// A line of a plot.
struct Series {
  std::string name;
  std::vector<double> x, y;
};

// A heat map: values[i][j] at y[i] and x[j], of one sign.
struct HeatMap {
  std::string name, x_name, value_name;
  std::vector<double> x;
  std::vector<std::string> y;
  std::vector<std::vector<double>> values;
};

// What mathematics, counting or timing says of a claim: whether the outcome was as expected, and the figures that this
// rests on. Trained experiments have measures in its place, which rules.cpp judges.
struct Finding {
  std::string claim;  // "C-04"; or the experiment's own "X-05" for an expectation that is not a claim of a paper
  bool holds = false;
  std::string figures;
};

struct Result {
  std::vector<std::string> columns;
  std::vector<nlohmann::json> rows;  // arrays as long as columns: texts, numbers, null
  std::vector<Series> series = {};
  std::vector<HeatMap> maps = {};
  std::vector<Finding> findings = {};
  std::vector<Measure> measures = {};
  int signal = 0;  // not 0: a training run was ended early, and nothing else is valid
};

// What is known of the runs that a result rests on; functions that train add to it.
struct RunLog {
  nlohmann::json training = nlohmann::json::array();  // the records of the runs (training_record.h)
  std::vector<TriedRates> rates;

  void add(const RunLog& other) {
    training.insert(training.end(), other.training.begin(), other.training.end());
    rates.insert(rates.end(), other.rates.begin(), other.rates.end());
  }
};

struct Context {
  std::string shared_dir;  // <output>/<scale_name>
  std::string data_dir;
  std::function<void(const std::string&)> note;
  io::Progress& progress;
  nlohmann::json process;  // of this process: command, commit, cpu, cores, threads, target, torch
  RunLog& log;

  Context with(RunLog& other) const { return {shared_dir, data_dir, note, progress, process, other}; }
};

// The settings of an experiment, and the function that measures with them.
class Method {
 public:
  template <typename Settings>
  Method(Settings (*settings)(Scale), Result (*run)(const Settings&, const Context&))
      : has_scale_(true),
        settings_([settings](Scale scale) { return nlohmann::json(settings(scale)); }),
        run_([settings, run](Scale scale, const Context& context) { return run(settings(scale), context); }) {}
  // Settings that do not depend on the scale: the defaults of the struct.
  template <typename Settings>
  Method(Result (*run)(const Settings&, const Context&))
      : settings_([](Scale) { return nlohmann::json(Settings{}); }),
        run_([run](Scale, const Context& context) { return run(Settings{}, context); }) {}

  bool has_scale() const { return has_scale_; }
  nlohmann::json settings(Scale scale) const { return settings_(scale); }
  Result run(Scale scale, const Context& context) const { return run_(scale, context); }

 private:
  bool has_scale_ = false;
  std::function<nlohmann::json(Scale)> settings_;
  std::function<Result(Scale, const Context&)> run_;
};

// What a verdict rests on: proofs checked in numbers; counts and times; trained models, which rules.cpp judges.
enum class Kind { kMathematics, kMeasurement, kTrained };
const char* name_of(Kind kind);

struct Experiment {
  std::string name;
  std::string spec;  // "X-01", or the requirement that a small experiment tests
  std::string title;
  std::vector<std::string> claims;  // one finding for each
  std::string expected;             // fixed before anything is run
  std::string budget;               // of scale small, on 2 cores
  Method method;
  Kind kind = Kind::kTrained;
  int64_t revision = 1;                      // of the code; results of an earlier one are not kept
  double hours = 0;                          // of scale small on 2 cores, estimated from measured steps; 0: minutes
  std::vector<std::string> exceptions = {};  // settings of scale paper that differ from the published ones, and why
  std::string note = {};                     // what a reader of the result has to know
  bool shares_arms = false;                  // processes train its arms together; of others one process runs it

  bool has_scale() const { return method.has_scale(); }
  nlohmann::json settings_at(Scale scale) const { return method.settings(scale); }
  const char* scale_name(Scale scale) const { return has_scale() ? name_of(scale) : kNoScale; }

  static constexpr const char* kNoScale = "any";
};

const std::vector<Experiment>& table();

// Scale tiny: one seed.
Seeds seeds_of(Scale scale);
// Adds those that are not in `files` yet.
void add_files(Files& files, const Files& more);
// `tiny` for scale tiny, otherwise `other`.
template <typename T>
T by_scale(Scale scale, T tiny, T other) {
  return scale == Scale::kTiny ? tiny : other;
}

}  // namespace rf::reproduce
