// An experiment: what is claimed, what is expected, how it is measured. Each is one file of experiments/ and one line
// of table.cpp.
//
// Everything that determines the numbers is in its settings, a JSON object that depends on the scale alone, or on
// nothing if the experiment is mathematics or counting and takes seconds. run() reads nothing else, and a result is
// valid while the settings are the same. Keys with a meaning for all: "seeds", the random seeds (absent if nothing is
// drawn), and "files", the data it reads, relative to --data.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "rf/io/progress.h"
#include "rf/reproduce/reproduce.h"

namespace rf::reproduce {

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

// The result of an experiment for a claim: whether the outcome was as expected, and the figures that this rests on.
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
  int signal = 0;  // not 0: a training run was ended early, and nothing else is valid
};

struct Context {
  const nlohmann::json& settings;
  std::string shared_dir;  // <output>/<scale_name>
  std::string data_dir;
  std::function<void(const std::string&)> note;
  io::Progress& progress;
};

struct Experiment {
  std::string name;
  std::string spec;  // "X-01", or the requirement that a small experiment tests
  std::string title;
  std::vector<std::string> claims;  // one finding for each
  std::string expected;             // fixed before anything is run
  std::string budget;               // of scale small, on 2 cores
  std::variant<nlohmann::json (*)(), nlohmann::json (*)(Scale scale)> settings;
  Result (*run)(const Context& context);

  bool has_scale() const { return settings.index() == 1; }
  nlohmann::json settings_at(Scale scale) const;
  const char* scale_name(Scale scale) const;  // kNoScale without one
};

inline constexpr const char* kNoScale = "any";

const std::vector<Experiment>& table();

// Scale tiny: one seed.
nlohmann::json seeds_of(Scale scale);
// `tiny` for scale tiny, otherwise `other`.
template <typename T>
T by_scale(Scale scale, T tiny, T other) {
  return scale == Scale::kTiny ? tiny : other;
}

}  // namespace rf::reproduce
